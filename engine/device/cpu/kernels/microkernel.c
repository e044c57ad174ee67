#include "engine/device/cpu/kernels/microkernel.h"
#include "engine/device/cpu/kernels.h"

/* The compiler makes copies per height, so that the sums stay in registers. */
#define WITH_HEIGHT(height)                                                                                            \
    case height:                                                                                                       \
        if (ahead == NULL)                                                                                             \
            multiply_rows(height, depth, rows, panel, to, false, NULL);                                                \
        else                                                                                                           \
            multiply_rows(height, depth, rows, panel, to, true, ahead);                                                \
        break;

void KERNEL(microkernel)(int height, int64_t depth, const float *rows, const float *panel, const destination *to,
                         const fetch *ahead) {
    switch (height) {
        WITH_HEIGHT(1)
        WITH_HEIGHT(2)
        WITH_HEIGHT(3)
        WITH_HEIGHT(4)
        WITH_HEIGHT(5)
        WITH_HEIGHT(6)
#if HEIGHT > 6
        WITH_HEIGHT(7)
        WITH_HEIGHT(8)
        WITH_HEIGHT(9)
        WITH_HEIGHT(10)
        WITH_HEIGHT(11)
        WITH_HEIGHT(12)
        WITH_HEIGHT(13)
        WITH_HEIGHT(14)
#endif
    }
}
