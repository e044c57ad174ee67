#include "fiber.h"

#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>

#if defined(__x86_64__)
enum { SAVED_WORDS = 6 }; /* rbp rbx r12 r13 r14 r15, below the return address */
asm(R"(
    .text
    .globl simcuda_switch
    .type simcuda_switch, @function
simcuda_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size simcuda_switch, . - simcuda_switch
)");
enum { RETURN_WORD = SAVED_WORDS, FRAME_WORDS = SAVED_WORDS + 2 }; /* one more, as a call leaves the stack */
#elif defined(__aarch64__)
enum { RETURN_WORD = 11, FRAME_WORDS = 20 }; /* x19..x30, d8..d15 */
asm(R"(
    .text
    .globl simcuda_switch
    .type simcuda_switch, %function
simcuda_switch:
    sub sp, sp, #160
    stp x19, x20, [sp]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size simcuda_switch, . - simcuda_switch
)");
#else
#error "simcuda switches fibers on x86-64 and aarch64 only"
#endif

namespace simcuda {

void *fiber_prepare(char *stack, size_t bytes, void (*entry)()) {
    uint64_t *frame = reinterpret_cast<uint64_t *>(stack + bytes) - FRAME_WORDS;
    for (int i = 0; i < FRAME_WORDS; i++)
        frame[i] = 0;
    frame[RETURN_WORD] = reinterpret_cast<uint64_t>(entry);
    return frame;
}

char *fiber_stack_create() {
    const size_t guard = 4096 * 16; /* a page of any system */
    void *memory = mmap(nullptr, guard + FIBER_STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, guard, PROT_NONE) != 0) {
        perror("simcuda: stack of a thread");
        exit(1);
    }
    return static_cast<char *>(memory) + guard;
}

} // namespace simcuda
