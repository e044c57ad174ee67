/* Part of the CUDA module: NCCL as what CUDA devices communicate by. */
#ifndef FSDP_ENGINE_DEVICE_CUDA_NCCL_H
#define FSDP_ENGINE_DEVICE_CUDA_NCCL_H

#include "engine/device/communication.h"

extern const communication communication_nccl;

#endif
