/* System calls without the C library: no errno, no cancellation point, no
 * interposer, nothing newer than the kernel itself. For every context. */
#ifndef GUARDIAN_KERNEL_H
#define GUARDIAN_KERNEL_H

#include <stdint.h>
#include <sys/syscall.h>

/* Returns the kernel's answer: a negative errno on failure. */
#if defined(__x86_64__)
static inline long guardian_syscall(long number, long a, long b, long c, long d, long e, long f) {
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}
#elif defined(__aarch64__)
static inline long guardian_syscall(long number, long a, long b, long c, long d, long e, long f) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc 0"
                   : "+r"(x0)
                   : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                   : "memory");
  return x0;
}
#else
#error "guardian's handler knows x86-64 and AArch64"
#endif

#define GUARDIAN_ARGUMENT(value) ((long)(value))
#define guardian_call0(n) guardian_syscall((n), 0, 0, 0, 0, 0, 0)
#define guardian_call1(n, a) guardian_syscall((n), GUARDIAN_ARGUMENT(a), 0, 0, 0, 0, 0)
#define guardian_call2(n, a, b) \
  guardian_syscall((n), GUARDIAN_ARGUMENT(a), GUARDIAN_ARGUMENT(b), 0, 0, 0, 0)
#define guardian_call3(n, a, b, c)                                                        \
  guardian_syscall((n), GUARDIAN_ARGUMENT(a), GUARDIAN_ARGUMENT(b), GUARDIAN_ARGUMENT(c), \
                   0, 0, 0)
#define guardian_call4(n, a, b, c, d)                                                     \
  guardian_syscall((n), GUARDIAN_ARGUMENT(a), GUARDIAN_ARGUMENT(b), GUARDIAN_ARGUMENT(c), \
                   GUARDIAN_ARGUMENT(d), 0, 0)
#define guardian_call6(n, a, b, c, d, e, f)                                               \
  guardian_syscall((n), GUARDIAN_ARGUMENT(a), GUARDIAN_ARGUMENT(b), GUARDIAN_ARGUMENT(c), \
                   GUARDIAN_ARGUMENT(d), GUARDIAN_ARGUMENT(e), GUARDIAN_ARGUMENT(f))

/* rt_sigaction's own structure, the same on both machines. */
struct guardian_kernel_action {
  void *handler;
  unsigned long flags;
  void *restorer;
  uint64_t mask;
};

#endif
