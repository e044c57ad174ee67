#define real double
#define reference_launch_real reference_launch_f64
#include "engine/device/reference/reference_kernels.h"
