#define real float
#define reference_launch_real reference_launch_f32
#include "engine/device/reference/reference_kernels.h"
