// The switch between two stacks: saves the callee-saved registers and the stack pointer, and takes another's.
// x86-64 (System V) and AArch64 (AAPCS64), ELF and Mach-O. ucontext would cost a system call for each switch.
#include "device/emulated/fiber.h"

#if defined(__APPLE__)
#define LILY_SYMBOL "_lily_fiber_switch"
#else
#define LILY_SYMBOL "lily_fiber_switch"
#endif

asm(".text\n.balign 16\n.globl " LILY_SYMBOL "\n" LILY_SYMBOL
    ":\n"
#if defined(__x86_64__)
    R"(
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
)"
#elif defined(__aarch64__)
    R"(
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
)"
#else
#error "the emulator knows x86-64 and AArch64"
#endif
);

#include <cstdint>
#include <cstring>

namespace lily::emulated {

void* prepare_stack(std::byte* top, void (*body)()) {
  auto aligned = reinterpret_cast<std::uintptr_t>(top) & ~std::uintptr_t{15};
#if defined(__x86_64__)
  // Six registers, the address to return to, and one word: `ret` leaves the stack pointer as a call would.
  auto* words = reinterpret_cast<void**>(aligned) - 8;
  std::memset(words, 0, 8 * sizeof(void*));
  words[6] = reinterpret_cast<void*>(body);
#else
  auto* words = reinterpret_cast<void**>(aligned) - 20;
  std::memset(words, 0, 20 * sizeof(void*));
  words[11] = reinterpret_cast<void*>(body);  // x30, the link register
#endif
  return words;
}

}  // namespace lily::emulated
