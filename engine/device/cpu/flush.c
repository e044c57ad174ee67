#include "engine/device/cpu/flush.h"

#include <stdint.h>

#if defined(__x86_64__)
enum { MXCSR_DENORMALS_ARE_ZERO = 1 << 6, MXCSR_FLUSH_TO_ZERO = 1 << 15 };

void flush_subnormals(void) {
    uint32_t control = 0;
    __asm__ volatile("stmxcsr %0" : "=m"(control));
    control |= MXCSR_DENORMALS_ARE_ZERO | MXCSR_FLUSH_TO_ZERO;
    __asm__ volatile("ldmxcsr %0" : : "m"(control));
}
#elif defined(__aarch64__)
enum { FPCR_FLUSH_TO_ZERO = 1 << 24 };

void flush_subnormals(void) {
    uint64_t control = 0;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    control |= FPCR_FLUSH_TO_ZERO;
    __asm__ volatile("msr fpcr, %0" : : "r"(control));
}
#else
#error "flush_subnormals is not written for this processor"
#endif
