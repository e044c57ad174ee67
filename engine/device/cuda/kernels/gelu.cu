/* gelu: out[N,F] from x[N,F]; gelu_backward: dx[N,F] from dout[N,F] and x[N,F].
 *
 * gelu(x) = x (1 + tanh u) / 2 with u = sqrt(2/pi) (x + 0.044715 x^3). (1 + tanh u) / 2 is the sigmoid of 2u, which
 * keeps its relative accuracy where 1 + tanh u would cancel. */
#include "engine/device/cuda/kernels.h"

#include "elementwise.cuh"
#include "sigmoid.cuh"

/* 2u = x (scale + cubic x^2). */
#define GELU_SCALE 1.5957691216f
#define GELU_CUBIC 0.0713548163f

struct gelu_forward {
    static __device__ float of(float x) {
        return x * sigmoid(x * (GELU_SCALE + GELU_CUBIC * x * x));
    }
};

struct gelu_gradient {
    static __device__ float of(float dout, float x) {
        float square = x * x, s = sigmoid(x * (GELU_SCALE + GELU_CUBIC * square));
        return dout * (s + x * (GELU_SCALE + 3 * GELU_CUBIC * square) * s * (1 - s));
    }
};

extern "C" const cuda_kernel cuda_gelu = {NULL, queue_unary<gelu_forward>};
extern "C" const cuda_kernel cuda_gelu_backward = {NULL, queue_binary<gelu_gradient>};
