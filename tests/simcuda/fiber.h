/* Switching between stacks: the registers that a called function must keep are pushed on the old stack and popped from
 * the new one. x86-64 and 64-bit Arm. */
#ifndef SIMCUDA_FIBER_H
#define SIMCUDA_FIBER_H

#include <cstddef>
#include <cstdint>

namespace simcuda {

enum : size_t { FIBER_STACK_BYTES = 128 * 1024 };

/* Saves where the caller stands in *from and goes on at `to`; returns when somebody switches back. */
extern "C" void simcuda_switch(void **from, void *to);

/* A stack pointer that, switched to, calls entry() at the top of the stack. entry must not return. */
void *fiber_prepare(char *stack, size_t bytes, void (*entry)());

/* FIBER_STACK_BYTES with an inaccessible page below. */
char *fiber_stack_create();

} // namespace simcuda

#endif
