/* Virtual dispositions: the program sees and gets back only what it set itself.
 *
 * Context: any, also signal handlers and the child of vfork(). No lock, no
 * malloc. Calls: the real sigaction and its relatives, sigemptyset, sigaddset,
 * sigdelset, sigfillset, sigismember, pthread_sigmask as a system call.
 *
 * The kernel's disposition is the one truth; the program's view is derived from
 * it, so that nothing can drift:
 *
 *   in the kernel             what the program sees
 *   guardian_on_crash         SIG_DFL, with the flags and mask it once gave
 *   once()                    its own handler, with SA_RESETHAND
 *   anything else             just that
 *
 * SA_RESETHAND is the one case where a handler does not go to the kernel
 * unchanged: the kernel would put SIG_DFL in its place, and the second fault,
 * by which such a program means to die, would not be seen. once() puts ours
 * in its place instead and calls the program's.
 *
 * What a view needs beyond the kernel's own is kept in single atomic words,
 * written before the disposition they belong to. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "internal.h"
#include "kernel.h"

#define BIT(n) (UINT64_C(1) << ((n) - 1))
static const uint64_t owned = BIT(SIGABRT) | BIT(SIGILL) | BIT(SIGSEGV) | BIT(SIGFPE) |
                              BIT(SIGBUS) | BIT(SIGPIPE) | BIT(SIGTRAP) | BIT(SIGSYS) |
                              BIT(SIGXCPU) | BIT(SIGXFSZ) | BIT(SIGQUIT) | BIT(SIGSTKFLT);

uint64_t guardian_owned_signals(void) { return owned; }
static bool is_owned(int n) { return n >= 1 && n <= 64 && (owned & BIT(n)) != 0; }

typedef void (*plain_handler)(int);
typedef int (*sigaction_function)(int, const struct sigaction *, struct sigaction *);
typedef plain_handler (*signal_function)(int, plain_handler);

static struct {
  sigaction_function sigaction;
  signal_function signal, sysv_signal, sigset;
  int (*sigignore)(int);
  int (*siginterrupt)(int, int);
} real;

bool guardian_find_real_dispositions(void) {
#ifdef GUARDIAN_STATIC
  real.sigaction = sigaction;
  return true;
#endif
  real.sigaction = guardian_next_symbol("sigaction");
  real.signal = guardian_next_symbol("signal");
  real.sysv_signal = guardian_next_symbol("sysv_signal");
  real.sigset = guardian_next_symbol("sigset");
  real.sigignore = guardian_next_symbol("sigignore");
  real.siginterrupt = guardian_next_symbol("siginterrupt");
  return real.sigaction != NULL;
}

/* ---- what the program set, where the kernel has something of ours ---- */

static struct {
  uint64_t default_mask;  /* of its SIG_DFL */
  uint64_t once_handler;  /* its handler that runs once */
  uint32_t default_flags;
  uint32_t once_flags;
} virtual_actions[65];
static uint64_t interrupting; /* siginterrupt(n, 1): signal() sets no SA_RESTART */

static uint64_t mask_word(const sigset_t *set) {
  uint64_t word;
  memcpy(&word, set, sizeof word); /* signals 1…64 are the first eight bytes */
  return word;
}
static void set_mask_word(sigset_t *set, uint64_t word) {
  memset(set, 0, sizeof *set);
  memcpy(set, &word, sizeof word);
}

static void note_replaced(int n, bool replaced) {
  struct guardian_ring_header *ring = guardian_state.ring;
  if (replaced)
    __atomic_fetch_or(&ring->replaced_signals, BIT(n), __ATOMIC_RELAXED);
  else
    __atomic_fetch_and(&ring->replaced_signals, ~BIT(n), __ATOMIC_RELAXED);
}

static struct sigaction ours(void) {
  struct sigaction act;
  memset(&act, 0, sizeof act);
  act.sa_sigaction = guardian_on_crash;
  /* SA_RESTART: a signal that is ignored after all (the first process of a pid
   * namespace) must not interrupt anything. */
  act.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
  /* Everything waits but a fault of the handler itself, which must be seen. */
  sigfillset(&act.sa_mask);
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&act.sa_mask, faults[i]);
  return act;
}

/* In the kernel instead of a handler with SA_RESETHAND. */
static void once(int n, siginfo_t *info, void *context) {
  int error = errno;
  uint64_t handler = __atomic_load_n(&virtual_actions[n].once_handler, __ATOMIC_RELAXED);
  struct sigaction act = ours();
  __atomic_store_n(&virtual_actions[n].default_flags,
                   __atomic_load_n(&virtual_actions[n].once_flags, __ATOMIC_RELAXED),
                   __ATOMIC_RELAXED);
  real.sigaction(n, &act, NULL);
  note_replaced(n, false);
  errno = error;
  ((void (*)(int, siginfo_t *, void *))handler)(n, info, context);
}

static void view(int n, struct sigaction *act) {
  if (act->sa_sigaction == guardian_on_crash) {
    act->sa_handler = SIG_DFL;
    act->sa_flags = (int)__atomic_load_n(&virtual_actions[n].default_flags, __ATOMIC_RELAXED);
    set_mask_word(&act->sa_mask,
                  __atomic_load_n(&virtual_actions[n].default_mask, __ATOMIC_RELAXED));
  } else if (act->sa_sigaction == once) {
    act->sa_handler =
        (plain_handler)__atomic_load_n(&virtual_actions[n].once_handler, __ATOMIC_RELAXED);
    act->sa_flags = (int)__atomic_load_n(&virtual_actions[n].once_flags, __ATOMIC_RELAXED);
  }
}

/* sigaction() as the program means it. */
static int virtual_sigaction(int n, const struct sigaction *new, struct sigaction *old) {
  if (!guardian_initialise() || !is_owned(n)) {
    if (real.sigaction == NULL) {
      errno = ENOSYS;
      return -1;
    }
    return real.sigaction(n, new, old);
  }
  struct sigaction kernel, before;
  if (new != NULL) {
    kernel = *new; /* faults here if it is no good, as it would in the C library */
    if (new->sa_handler == SIG_DFL) {
      __atomic_store_n(&virtual_actions[n].default_flags, (uint32_t)new->sa_flags,
                       __ATOMIC_RELAXED);
      __atomic_store_n(&virtual_actions[n].default_mask, mask_word(&new->sa_mask),
                       __ATOMIC_RELAXED);
      kernel = ours();
    } else if (new->sa_handler != SIG_IGN && (new->sa_flags & (int)SA_RESETHAND) != 0) {
      __atomic_store_n(&virtual_actions[n].once_flags, (uint32_t)new->sa_flags, __ATOMIC_RELAXED);
      __atomic_store_n(&virtual_actions[n].once_handler, (uint64_t)(uintptr_t)new->sa_handler,
                       __ATOMIC_RELAXED);
      kernel.sa_sigaction = once;
      kernel.sa_flags = (new->sa_flags & ~(int)SA_RESETHAND) | SA_SIGINFO;
    }
  }
  int result = real.sigaction(n, new ? &kernel : NULL, old ? &before : NULL);
  if (result != 0) return result;
  if (new != NULL) note_replaced(n, new->sa_handler != SIG_DFL && new->sa_handler != SIG_IGN);
  if (old != NULL) {
    view(n, &before);
    *old = before;
  }
  return 0;
}

void guardian_install_dispositions(void) {
  for (int n = 1; n <= 31; n++) {
    struct sigaction now, act;
    if (!is_owned(n) || real.sigaction(n, NULL, &now) != 0) continue;
    /* Ignored when it was started: so it stays, and so the program sees it. */
    if (now.sa_handler == SIG_DFL) {
      act = ours();
      real.sigaction(n, &act, NULL);
    } else if (now.sa_handler != SIG_IGN) {
      note_replaced(n, true);
    }
  }
  __atomic_fetch_or(&guardian_state.ring->handler_flags, GUARDIAN_HANDLER_INSTALLED,
                    __ATOMIC_RELAXED);
}

/* ---- the old spellings: each is a sigaction() with fixed flags ---- */

static plain_handler virtual_signal(int n, plain_handler handler, int flags, bool mask_itself) {
  struct sigaction act, old;
  if (handler == SIG_ERR) {
    errno = EINVAL;
    return SIG_ERR;
  }
  memset(&act, 0, sizeof act);
  act.sa_handler = handler;
  act.sa_flags = flags;
  if (mask_itself) sigaddset(&act.sa_mask, n);
  return virtual_sigaction(n, &act, &old) == 0 ? old.sa_handler : SIG_ERR;
}

static bool passes_through(int n) { return !guardian_initialise() || !is_owned(n); }

static plain_handler bsd(int n, plain_handler handler) {
  if (passes_through(n) && real.signal) return real.signal(n, handler);
  bool interrupts = (__atomic_load_n(&interrupting, __ATOMIC_RELAXED) & BIT(n)) != 0;
  return virtual_signal(n, handler, interrupts ? 0 : SA_RESTART, true);
}
static plain_handler sysv(int n, plain_handler handler) {
  if (passes_through(n) && real.sysv_signal) return real.sysv_signal(n, handler);
  return virtual_signal(n, handler, (int)(SA_RESETHAND | SA_NODEFER | SA_INTERRUPT), false);
}

GUARDIAN_INTERPOSER int GUARDIAN_INTERPOSED(sigaction)(int n,
                                                       const struct sigaction *new,
                                                       struct sigaction *old) {
  return virtual_sigaction(n, new, old);
}
int GUARDIAN_INTERPOSED(__sigaction)(int n, const struct sigaction *new, struct sigaction *old);
GUARDIAN_INTERPOSER int GUARDIAN_INTERPOSED(__sigaction)(int n,
                                                         const struct sigaction *new,
                                                         struct sigaction *old) {
  return virtual_sigaction(n, new, old);
}
GUARDIAN_INTERPOSER plain_handler GUARDIAN_INTERPOSED(signal)(int n, plain_handler handler) {
  return bsd(n, handler);
}
plain_handler GUARDIAN_INTERPOSED(bsd_signal)(int n, plain_handler handler);
GUARDIAN_INTERPOSER plain_handler GUARDIAN_INTERPOSED(bsd_signal)(int n, plain_handler handler) {
  return bsd(n, handler);
}
GUARDIAN_INTERPOSER plain_handler GUARDIAN_INTERPOSED(ssignal)(int n, plain_handler handler) {
  return bsd(n, handler);
}
GUARDIAN_INTERPOSER plain_handler GUARDIAN_INTERPOSED(sysv_signal)(int n, plain_handler handler) {
  return sysv(n, handler);
}
plain_handler GUARDIAN_INTERPOSED(__sysv_signal)(int n, plain_handler handler);
GUARDIAN_INTERPOSER plain_handler GUARDIAN_INTERPOSED(__sysv_signal)(int n, plain_handler handler) {
  return sysv(n, handler);
}

GUARDIAN_INTERPOSER plain_handler GUARDIAN_INTERPOSED(sigset)(int n, plain_handler handler) {
  if (passes_through(n) && real.sigset) return real.sigset(n, handler);
  uint64_t before = 0, bit = BIT(n);
  int how = handler == SIG_HOLD ? SIG_BLOCK : SIG_UNBLOCK;
  struct sigaction old;
  plain_handler result;
  if (handler == SIG_HOLD)
    result = virtual_sigaction(n, NULL, &old) == 0 ? old.sa_handler : SIG_ERR;
  else
    result = virtual_signal(n, handler, 0, false);
  if (result == SIG_ERR) return SIG_ERR;
  guardian_call4(SYS_rt_sigprocmask, how, &bit, &before, sizeof before);
  return before & bit ? SIG_HOLD : result;
}

GUARDIAN_INTERPOSER int GUARDIAN_INTERPOSED(sigignore)(int n) {
  if (passes_through(n) && real.sigignore) return real.sigignore(n);
  return virtual_signal(n, SIG_IGN, 0, false) == SIG_ERR ? -1 : 0;
}

GUARDIAN_INTERPOSER int GUARDIAN_INTERPOSED(siginterrupt)(int n, int interrupt) {
  if (passes_through(n) && real.siginterrupt) return real.siginterrupt(n, interrupt);
  struct sigaction act;
  if (virtual_sigaction(n, NULL, &act) != 0) return -1;
  if (interrupt) {
    __atomic_fetch_or(&interrupting, BIT(n), __ATOMIC_RELAXED);
    act.sa_flags &= ~SA_RESTART;
  } else {
    __atomic_fetch_and(&interrupting, ~BIT(n), __ATOMIC_RELAXED);
    act.sa_flags |= SA_RESTART;
  }
  return virtual_sigaction(n, &act, NULL);
}

/* Gone from the headers since glibc 2.21, still there for programs older than that. */
struct sigvec_of_old {
  plain_handler handler;
  int mask;
  int flags; /* 1 on the alternate stack, 2 interrupts, 4 once */
};
int GUARDIAN_INTERPOSED(sigvec)(int n, const struct sigvec_of_old *new, struct sigvec_of_old *old);
GUARDIAN_INTERPOSER int GUARDIAN_INTERPOSED(sigvec)(int n,
                                                    const struct sigvec_of_old *new,
                                                    struct sigvec_of_old *old) {
  struct sigaction act, before;
  if (new != NULL) {
    memset(&act, 0, sizeof act);
    act.sa_handler = new->handler;
    set_mask_word(&act.sa_mask, (uint32_t)new->mask);
    act.sa_flags = (new->flags & 1 ? SA_ONSTACK : 0) | (new->flags & 2 ? 0 : SA_RESTART) |
                   (new->flags & 4 ? (int)SA_RESETHAND : 0);
  }
  if (virtual_sigaction(n, new ? &act : NULL, old ? &before : NULL) != 0) return -1;
  if (old != NULL) {
    old->handler = before.sa_handler;
    old->mask = (int)mask_word(&before.sa_mask);
    old->flags = (before.sa_flags & SA_ONSTACK ? 1 : 0) | (before.sa_flags & SA_RESTART ? 0 : 2) |
                 (before.sa_flags & (int)SA_RESETHAND ? 4 : 0);
  }
  return 0;
}
