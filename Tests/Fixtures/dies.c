// flags: -O1 -g -fno-omit-frame-pointer -fstack-protector-all -D_FORTIFY_SOURCE=2 -pthread -w
/* One program that can die in every way.
 *
 *   dies [OPTION]... WAY [ARGUMENT]
 *
 *   --thread        die in a second thread, named "dying", not in main
 *   --threads N     N further threads, named "waiter-0" ..., wait in `waiting_thread`
 *   --spin          ... and spin in `spinning_thread` instead
 *   --malloc-lock   another thread holds malloc's arena lock for ever while WAY happens
 *   --wait          print "ready PID" and die only when a line (or the end) comes on stdin
 *   --say TEXT      write TEXT and a newline to stderr first
 *   --life-file F   count the lives in file F; every life but the first only waits
 *
 * Every way happens in a function `die_<way>` that is never inlined, on a line
 * that carries the comment "dies: <way>": a test finds the expected line by it.
 * It runs with or without guardian and uses nothing of it. `dies --list` prints
 * the ways. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <grp.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAY __attribute__((noinline, noclone))
#define KEEP_FRAME __asm__ volatile("" ::: "memory")

static const char *argument; /* ARGUMENT or NULL */
static volatile int zero;
static volatile long sink;

static long argument_number(long otherwise) { return argument ? strtol(argument, NULL, 10) : otherwise; }
static void fail(const char *what) {
  fprintf(stderr, "dies: %s: %s\n", what, strerror(errno));
  _exit(99);
}
static void say(const char *text) { (void)!write(1, text, strlen(text)); }
static void *page(int protection) {
  void *p = mmap(NULL, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) fail("mmap");
  return p;
}

/* ---- memory ---- */

WAY void die_null_read(void) {
  int *volatile p = NULL;
  sink = *(volatile int *)p; /* dies: null-read */
}
WAY void die_null_write(void) {
  int *volatile p = NULL;
  *(volatile int *)p = 1; /* dies: null-write */
}
WAY void die_field_read(void) {
  char *volatile p = NULL;
  sink = *(volatile int *)(p + 0x10); /* dies: field-read */
}
WAY void die_garbage_read(void) {
  int *volatile p = (int *)0x123456789000;
  sink = *(volatile int *)p; /* dies: garbage-read */
}
WAY void die_noncanonical_read(void) {
  int *volatile p = (int *)0xdeadbeefdeadbeef;
  sink = *(volatile int *)p; /* dies: noncanonical-read */
}
WAY void die_readonly_write(void) {
  char *volatile p = page(PROT_READ);
  *(volatile char *)p = 1; /* dies: readonly-write */
}
WAY void die_after_munmap(void) {
  char *volatile p = page(PROT_READ | PROT_WRITE);
  munmap(p, 4096);
  sink = *(volatile char *)p; /* dies: after-munmap */
}
WAY void die_call_null(void) {
  void (*volatile f)(void) = NULL;
  f(); /* dies: call-null */
  KEEP_FRAME;
}
WAY void die_call_garbage(void) {
  void (*volatile f)(void) = (void (*)(void))0x123456789000;
  f(); /* dies: call-garbage */
  KEEP_FRAME;
}
WAY void die_call_nx(void) {
  void (*volatile f)(void) = (void (*)(void))page(PROT_READ | PROT_WRITE);
  f(); /* dies: call-nx */
  KEEP_FRAME;
}
WAY long die_stack_overflow_deeper(long depth) {
  volatile char block[512];
  block[depth & 511] = (char)depth;
  long below = die_stack_overflow_deeper(depth + 1); /* dies: stack-overflow */
  return below + block[depth & 511];
}
WAY void die_stack_overflow(void) { sink = die_stack_overflow_deeper(1); }
WAY void die_bus_truncated_file(void) {
  int fd = memfd_create("truncated", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, 4096) != 0) fail("memfd");
  char *volatile p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED || ftruncate(fd, 0) != 0) fail("truncate");
  sink = *(volatile char *)p; /* dies: bus-truncated-file */
}
#if defined(__x86_64__)
WAY void die_no_stack(void) {
  __asm__ volatile("xor %%esp, %%esp\n\tpush %%rax" ::: "memory"); /* dies: no-stack */
}
WAY void die_alignment_check(void) {
  static char bytes[16] __attribute__((aligned(16)));
  char *volatile p = bytes + 1;
  char *q = p;
  __asm__ volatile(
      "pushf\n\torl $0x40000, (%%rsp)\n\tpopf\n\tmovl (%0), %%eax" ::"r"(q) : "rax", "memory", "cc"); /* dies: alignment-check */
}
WAY void die_movaps(void) {
  static char bytes[32] __attribute__((aligned(16)));
  __asm__ volatile("movaps (%0), %%xmm0" ::"r"(bytes + 1) : "xmm0", "memory"); /* dies: movaps */
}
WAY void die_privileged(void) {
  __asm__ volatile("hlt"); /* dies: privileged */
}
WAY void die_direction_flag(void) {
  int *volatile p = NULL;
  int *q = p;
  __asm__ volatile("std\n\tmovl (%0), %%eax" ::"r"(q) : "rax", "memory", "cc"); /* dies: direction-flag */
}
#endif

/* ---- instructions ---- */

WAY void die_ill(void) {
  KEEP_FRAME;
  __builtin_trap(); /* dies: ill */
}
WAY void die_trap(void) {
#if defined(__x86_64__)
  __asm__ volatile("int3"); /* dies: trap */
#else
  __asm__ volatile("brk #0");
#endif
}
WAY void die_fpe(void) {
#if defined(__x86_64__)
  sink = 10 / zero; /* dies: fpe */
#else
  raise(SIGFPE);
#endif
}
WAY void die_fpe_float(void) {
  feenableexcept(FE_DIVBYZERO);
  volatile double a = 1, b = 0, c;
  c = a / b; /* dies: fpe-float */
  c = c + 1;
}

/* ---- the C library's own ends ---- */

WAY void die_abort(void) {
  KEEP_FRAME;
  abort(); /* dies: abort */
}
WAY void die_assert(void) {
  KEEP_FRAME;
  assert(zero == 1); /* dies: assert */
}
WAY void die_double_free(void) {
  void *volatile p = malloc(40);
  free(p);
  free(p); /* dies: double-free */
  KEEP_FRAME;
}
WAY void die_double_free_large(void) {
  /* Not in the thread cache: the arena's lock is held when the library aborts. */
  void *volatile p = malloc(4000), *volatile q = malloc(4000);
  free(p);
  free(p); /* dies: double-free-large */
  free(q);
}
WAY void die_invalid_free(void) {
  char *volatile p = malloc(64);
  free(p + 8); /* dies: invalid-free */
  KEEP_FRAME;
}
WAY void die_heap_overflow(void) {
  char *volatile p = malloc(1400), *volatile q = malloc(1400);
  memset((char *volatile)p, 0x41, 1400);
  for (volatile int i = 1400; i < 1424; i++) ((volatile char *)p)[i] = 0x41;
  free(q); /* dies: heap-overflow */
  KEEP_FRAME;
}
WAY void die_stack_smash(void) {
  char block[16];
  volatile char *p = block;
  for (int i = 0; i < 64; i++) p[i] = 0x41;
  sink = p[3];
} /* dies: stack-smash */
WAY void die_fortify(void) {
  char block[8];
  volatile size_t n = 64;
  memset(block, 0x41, n); /* dies: fortify */
  sink = ((volatile char *)block)[0];
}
/* Faults inside malloc() while it holds the arena's lock. */
WAY void die_malloc_lock(void) {
  uintptr_t *volatile p = malloc(2000);
  void *volatile guard = malloc(2000);
  free(p);
  ((volatile uintptr_t *)p)[1] = 0x10; /* the free chunk's back link */
  sink = (long)malloc(4000); /* dies: malloc-lock */
  sink = (long)guard;
}

/* ---- signals that are sent ---- */

WAY void die_raise(void) {
  raise((int)argument_number(SIGSEGV)); /* dies: raise */
  KEEP_FRAME;
}
WAY void die_kill(void) {
  kill(getpid(), (int)argument_number(SIGSEGV)); /* dies: kill */
  for (;;) pause();
}
WAY void die_tgkill(void) {
  syscall(SYS_tgkill, getpid(), gettid(), (int)argument_number(SIGSEGV)); /* dies: tgkill */
  KEEP_FRAME;
}
WAY void die_sigqueue(void) {
  sigqueue(getpid(), (int)argument_number(SIGSEGV), (union sigval){.sival_int = 42}); /* dies: sigqueue */
  for (;;) pause();
}
/* Killed by another process, which is this one's child. */
WAY void die_killed_by_child(void) {
  pid_t self = getpid();
  pid_t child = fork();
  if (child == 0) {
    kill(self, (int)argument_number(SIGSEGV));
    _exit(0);
  }
  for (;;) pause(); /* dies: killed-by-child */
}
WAY void die_sigpipe(void) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail("pipe");
  close(ends[0]);
  sink = write(ends[1], "x", 1); /* dies: sigpipe */
}
WAY void die_xcpu(void) {
  setrlimit(RLIMIT_CPU, &(struct rlimit){1, 3});
  for (;;) sink++; /* dies: xcpu */
}
WAY void die_xfsz(void) {
  int fd = memfd_create("big", MFD_CLOEXEC);
  setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, 4096});
  static char block[8192];
  sink = write(fd, block, 4096);
  sink = write(fd, block, 4096); /* dies: xfsz */
}
static void filter(struct sock_filter *rules, unsigned short count) {
  struct sock_fprog program = {count, rules};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    fail("seccomp");
}
WAY void die_sys(void) {
  struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getsid, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  filter(rules, 4);
  sink = syscall(SYS_getsid, 0); /* dies: sys */
}
WAY void die_memory_limit(void) {
  setrlimit(RLIMIT_AS, &(struct rlimit){64 << 20, 64 << 20});
  char *volatile p = malloc(256 << 20);
  *(volatile char *)p = 1; /* dies: memory-limit */
}
/* Grows until it is stopped, in whatever memory cgroup it is. */
WAY void die_oom(void) {
  for (;;) {
    char *volatile p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) fail("mmap");
    memset(p, 1, 1 << 20); /* dies: oom */
  }
}

/* ---- no crash ---- */

WAY void die_exit(void) { exit((int)argument_number(0)); }
WAY void die_quick_exit(void) { _exit((int)argument_number(0)); }
WAY void die_sleep(void) {
  for (;;) pause();
}
/* Waits without end, deaf to SIGTERM. */
WAY void die_deaf(void) {
  signal(SIGTERM, SIG_IGN);
  for (;;) pause();
}
WAY void die_spin(void) {
  for (;;) sink++;
}
WAY void die_detach(void) {
  if (fork() != 0) exit(0);
  setsid();
  for (;;) pause();
}
WAY void die_exec(void) {
  execl("/proc/self/exe", "dies", argument ? argument : "null-read", NULL);
  fail("exec");
}
WAY void die_exec_missing(void) {
  execl("/nonexistent", "nonexistent", NULL);
  fail("exec");
}

/* ---- dispositions and masks ---- */

WAY void die_segv_while_blocked(void) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  int *volatile p = NULL;
  sink = *(volatile int *)p; /* dies: segv-while-blocked */
}
WAY void die_abort_while_blocked(void) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  abort(); /* dies: abort-while-blocked */
}
WAY void die_segv_while_ignored(void) {
  signal(SIGSEGV, SIG_IGN);
  int *volatile p = NULL;
  sink = *(volatile int *)p; /* dies: segv-while-ignored */
}
WAY void die_abort_while_ignored(void) {
  signal(SIGABRT, SIG_IGN);
  abort(); /* dies: abort-while-ignored */
}
static volatile int handled;
/* As redis and the JVM do: say something, fall back to the default, end by it. */
static void log_then_default(int signal_number) {
  say("handled\n");
  struct sigaction act = {.sa_handler = SIG_DFL};
  sigaction(signal_number, &act, NULL);
  raise(signal_number);
}
WAY void die_handler_then_default(void) {
  struct sigaction act = {.sa_handler = log_then_default, .sa_flags = SA_NODEFER};
  sigaction(SIGSEGV, &act, NULL);
  int *volatile p = NULL;
  sink = *(volatile int *)p; /* dies: handler-then-default */
}
/* As Rust does for a fault that is no stack overflow: default, and fault again. */
static void default_then_return(int signal_number) {
  signal(signal_number, SIG_DFL);
  handled++;
}
WAY void die_handler_then_refault(void) {
  struct sigaction act = {.sa_handler = default_then_return, .sa_flags = SA_ONSTACK};
  sigaction(SIGSEGV, &act, NULL);
  int *volatile p = NULL;
  sink = *(volatile int *)p; /* dies: handler-then-refault */
}
static void count_signal(int signal_number) { handled++; }
WAY void die_handler_once(void) {
  struct sigaction act = {.sa_handler = count_signal, .sa_flags = (int)SA_RESETHAND};
  sigaction(SIGSEGV, &act, NULL);
  int *volatile p = NULL;
  sink = *(volatile int *)p; /* dies: handler-once */
}
static sigjmp_buf back;
static void jump_back(int signal_number) { siglongjmp(back, 1); }
/* As a JVM's null checks: a fault is handled, over and over, and the program ends well. */
WAY void die_handler_lives_on(void) {
  signal(SIGSEGV, jump_back);
  for (volatile int i = 0; i < 100; i++) {
    int *volatile p = NULL;
    if (sigsetjmp(back, 1) == 0) sink = *(volatile int *)p;
    handled++;
  }
  exit(handled == 100 ? 0 : 98);
}
static void allocate_and_exit(int signal_number) {
  void *volatile p = malloc(100);
  free(p);
  _exit(0);
}
/* What no handler should do; a test of the test that looks for it. */
WAY void die_handler_allocates(void) {
  struct sigaction act = {.sa_handler = allocate_and_exit, .sa_flags = SA_ONSTACK};
  sigaction(SIGSEGV, &act, NULL);
  int *volatile p = NULL;
  sink = *(volatile int *)p; /* dies: handler-allocates */
}
WAY void die_handler_exits(void) {
  signal(SIGSEGV, (void (*)(int))_exit);
  int *volatile p = NULL;
  sink = *(volatile int *)p; /* dies: handler-exits */
}
WAY void die_ignored_lives_on(void) {
  signal(SIGPIPE, SIG_IGN);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail("pipe");
  close(ends[0]);
  long n = write(ends[1], "x", 1);
  exit(n == -1 && errno == EPIPE ? 0 : 98);
}
static void crash_in_handler(int signal_number) {
  int *volatile p = NULL;
  sink = *(volatile int *)p; /* dies: crash-in-handler */
}
WAY void die_crash_in_handler(void) {
  signal(SIGUSR1, crash_in_handler);
  raise(SIGUSR1);
}

/* ---- stacks ---- */

WAY void die_no_altstack(void) {
  stack_t none = {.ss_flags = SS_DISABLE};
  sigaltstack(&none, NULL);
  int *volatile p = NULL;
  sink = *(volatile int *)p; /* dies: no-altstack */
}
WAY void die_no_altstack_overflow(void) {
  stack_t none = {.ss_flags = SS_DISABLE};
  sigaltstack(&none, NULL);
  die_stack_overflow();
}
WAY void die_own_altstack(void) {
  size_t size = 64 << 10;
  stack_t own = {.ss_sp = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                 .ss_size = size};
  if (sigaltstack(&own, NULL) != 0) fail("sigaltstack");
  int *volatile p = NULL;
  sink = *(volatile int *)p; /* dies: own-altstack */
}
/* The smallest alternate stack that the kernel takes. */
WAY void die_tiny_altstack(void) {
  size_t size = 4096;
  char *stack = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (; size < 1 << 19; size += 1024) {
    size_t whole = (size + 4095) & ~4095ul;
    mprotect(stack + (1 << 19), whole, PROT_READ | PROT_WRITE);
    stack_t own = {.ss_sp = stack + (1 << 19) + (whole - size), .ss_size = size};
    if (sigaltstack(&own, NULL) == 0) break;
  }
  int *volatile p = NULL;
  sink = *(volatile int *)p; /* dies: tiny-altstack */
}

/* ---- threads ---- */

static pthread_barrier_t together;
WAY void *die_together(void *unused) {
  pthread_barrier_wait(&together);
  int *volatile p = NULL;
  sink = *(volatile int *)p; /* dies: two-threads-at-once */
  return NULL;
}
WAY void die_two_threads_at_once(void) {
  pthread_t other[64];
  long count = argument_number(2);
  if (count > 64) count = 64;
  pthread_barrier_init(&together, NULL, (unsigned)count);
  for (long i = 0; i < count; i++) pthread_create(&other[i], NULL, die_together, NULL);
  for (long i = 0; i < count; i++) pthread_join(other[i], NULL);
}
static void *die_in_detached(void *unused) {
  pthread_detach(pthread_self());
  die_null_read();
  return NULL;
}
WAY void die_detached_thread(void) {
  pthread_t other;
  pthread_create(&other, NULL, die_in_detached, NULL);
  pthread_exit(NULL);
}
static void die_in_cleanup(void *unused) { die_null_read(); }
static void *cancelled(void *unused) {
  pthread_cleanup_push(die_in_cleanup, NULL);
  for (;;) pause();
  pthread_cleanup_pop(0);
  return NULL;
}
WAY void die_cancelled_thread(void) {
  pthread_t other;
  pthread_create(&other, NULL, cancelled, NULL);
  pthread_cancel(other);
  pthread_join(other, NULL);
}
static void die_in_key(void *unused) { die_null_read(); }
static pthread_key_t key;
static void *with_key(void *unused) {
  pthread_setspecific(key, &key);
  return NULL;
}
WAY void die_thread_exit(void) {
  pthread_t other;
  pthread_key_create(&key, die_in_key);
  pthread_create(&other, NULL, with_key, NULL);
  pthread_join(other, NULL);
}
/* Starts and joins threads, 50 at once, and prints how many mappings there are before and after. */
static int mappings(void) {
  char buffer[4096];
  int count = 0;
  int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;)
    for (ssize_t i = 0; i < n; i++) count += buffer[i] == '\n';
  close(fd);
  return count;
}
static void *nothing(void *unused) { return NULL; }
static void batch_of_threads(void) {
  pthread_t all[50];
  for (int i = 0; i < 50; i++) pthread_create(&all[i], NULL, nothing, NULL);
  for (int i = 0; i < 50; i++) pthread_join(all[i], NULL);
}
WAY void die_many_threads(void) {
  for (int i = 0; i < 4; i++) batch_of_threads();
  int before = mappings();
  for (int i = 0; i < (int)argument_number(40); i++) batch_of_threads();
  printf("mappings %d %d\n", before, mappings());
  fflush(stdout);
  exit(0);
}

/* ---- processes ---- */

static void pass_on(pid_t child) {
  int status;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  printf("child %d %s %d\n", (int)child, WIFSIGNALED(status) ? "signal" : "exit",
         WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  fflush(stdout);
  exit(0);
}
WAY void die_fork_child(void) {
  pid_t child = fork();
  if (child == 0) {
    die_null_read();
    _exit(97);
  }
  pass_on(child);
}
static void *die_in_thread(void *unused) {
  die_null_read();
  return NULL;
}
WAY void die_fork_child_thread(void) {
  pid_t child = fork();
  if (child == 0) {
    pthread_t other;
    pthread_create(&other, NULL, die_in_thread, NULL);
    pthread_join(other, NULL);
    _exit(97);
  }
  pass_on(child);
}
WAY void die_vfork_child(void) {
  pid_t child = vfork();
  if (child == 0) {
    die_null_read();
    _exit(97);
  }
  pass_on(child);
}
/* A raw clone without the C library's knowledge. */
WAY void die_clone_child(void) {
  long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (child == 0) {
    die_null_read();
    _exit(97);
  }
  pass_on((pid_t)child);
}
/* A worker crashes while its master serves on: prints "worker PID", then waits for stdin's end. */
WAY void die_fork_worker(void) {
  pid_t child = fork();
  if (child == 0) {
    die_null_read();
    _exit(97);
  }
  int status;
  waitpid(child, &status, 0);
  printf("worker %d\n", (int)child);
  fflush(stdout);
  while (getchar() != EOF) {}
  exit(0);
}
WAY void die_system(void) {
  int status = system("exit 3");
  struct sigaction now;
  sigaction(SIGQUIT, NULL, &now);
  exit(WEXITSTATUS(status) == 3 && now.sa_handler == SIG_DFL ? 0 : 98);
}

/* ---- rights and resources ---- */

WAY void die_setuid(void) {
  uid_t uid = (uid_t)argument_number(65533);
  if (setgroups(0, NULL) != 0 || setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0) fail("setuid");
  die_null_read();
}
WAY void die_chroot(void) {
  if (chroot(".") != 0 || chdir("/") != 0) fail("chroot");
  die_null_read();
}
WAY void die_namespaces(void) {
  if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) != 0) fail("unshare");
  die_null_read();
}
/* The first process of a new pid namespace: the kernel ignores its default actions. */
WAY void die_pid_one(void) {
  if (unshare(CLONE_NEWPID) != 0) fail("unshare");
  pid_t child = fork();
  if (child == 0) {
    die_null_read();
    _exit(97);
  }
  pass_on(child);
}
WAY void die_pid_one_abort(void) {
  if (unshare(CLONE_NEWPID) != 0) fail("unshare");
  pid_t child = fork();
  if (child == 0) {
    kill(getpid(), SIGTRAP);
    die_abort();
    _exit(97);
  }
  pass_on(child);
}
WAY void die_closed_fds(void) {
  for (int fd = 3; fd < 4096; fd++) close(fd);
  die_null_read();
}
WAY void die_close_range(void) {
  syscall(SYS_close_range, 0, ~0u, 0);
  die_null_read();
}
/* Someone else's file now has the number of every descriptor that was closed. */
WAY void die_stolen_fds(void) {
  int open_ones = 0;
  for (int fd = 3; fd < 1024; fd++)
    if (dup2(2, fd) == fd) open_ones++;
  sink = open_ones;
  die_null_read();
}
WAY void die_exhausted_fds(void) {
  while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) {}
  die_null_read();
}
WAY void die_closed_and_exhausted_fds(void) {
  for (int fd = 3; fd < 4096; fd++) close(fd);
  while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) {}
  die_null_read();
}
WAY void die_no_core(void) {
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  die_null_read();
}
/* A filter that refuses everything a crash handler might not need. */
WAY void die_seccomp_refusing(void) {
  static const int refused[] = {SYS_socket, SYS_connect, SYS_openat, SYS_process_vm_readv, SYS_unshare,
                                SYS_mmap, SYS_prctl, SYS_clone, SYS_ptrace, SYS_fcntl};
  enum { N = sizeof refused / sizeof *refused };
  struct sock_filter rules[N + 3] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
  for (int i = 0; i < N; i++)
    rules[1 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused[i], N - i, 0);
  rules[N + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  rules[N + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  filter(rules, N + 3);
  die_null_read();
}
/* A filter that kills for anything but a few harmless calls. */
WAY void die_seccomp_killing(void) {
  static const int allowed[] = {SYS_read, SYS_write, SYS_futex, SYS_rt_sigaction, SYS_rt_sigprocmask,
                                SYS_rt_sigreturn, SYS_gettid, SYS_getpid, SYS_tgkill, SYS_exit_group,
                                SYS_rt_tgsigqueueinfo, SYS_sendto, SYS_clock_gettime, SYS_fstat, SYS_newfstatat};
  enum { N = sizeof allowed / sizeof *allowed };
  struct sock_filter rules[N + 3] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
  for (int i = 0; i < N; i++)
    rules[1 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], N - i, 0);
  rules[N + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  rules[N + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  filter(rules, N + 3);
  die_null_read();
}

/* ---- before and after main ---- */

static void die_now(void) { die_null_read(); }
WAY void die_atexit(void) {
  atexit(die_now);
  exit(0);
}
WAY void die_constructor(void) { fail("the constructor did not die"); }
__attribute__((constructor)) static void early(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "constructor") == 0) die_null_read();
}

/* ---- the rest ---- */

static const struct {
  const char *name;
  void (*die)(void);
} ways[] = {
    {"null-read", die_null_read},
    {"null-write", die_null_write},
    {"field-read", die_field_read},
    {"garbage-read", die_garbage_read},
    {"noncanonical-read", die_noncanonical_read},
    {"readonly-write", die_readonly_write},
    {"after-munmap", die_after_munmap},
    {"call-null", die_call_null},
    {"call-garbage", die_call_garbage},
    {"call-nx", die_call_nx},
    {"stack-overflow", die_stack_overflow},
    {"bus-truncated-file", die_bus_truncated_file},
#if defined(__x86_64__)
    {"no-stack", die_no_stack},
    {"alignment-check", die_alignment_check},
    {"movaps", die_movaps},
    {"privileged", die_privileged},
    {"direction-flag", die_direction_flag},
#endif
    {"ill", die_ill},
    {"trap", die_trap},
    {"fpe", die_fpe},
    {"fpe-float", die_fpe_float},
    {"abort", die_abort},
    {"assert", die_assert},
    {"double-free", die_double_free},
    {"double-free-large", die_double_free_large},
    {"invalid-free", die_invalid_free},
    {"heap-overflow", die_heap_overflow},
    {"stack-smash", die_stack_smash},
    {"fortify", die_fortify},
    {"malloc-lock", die_malloc_lock},
    {"raise", die_raise},
    {"kill", die_kill},
    {"tgkill", die_tgkill},
    {"sigqueue", die_sigqueue},
    {"killed-by-child", die_killed_by_child},
    {"sigpipe", die_sigpipe},
    {"xcpu", die_xcpu},
    {"xfsz", die_xfsz},
    {"sys", die_sys},
    {"memory-limit", die_memory_limit},
    {"oom", die_oom},
    {"exit", die_exit},
    {"quick-exit", die_quick_exit},
    {"sleep", die_sleep},
    {"deaf", die_deaf},
    {"spin", die_spin},
    {"detach", die_detach},
    {"exec", die_exec},
    {"exec-missing", die_exec_missing},
    {"segv-while-blocked", die_segv_while_blocked},
    {"abort-while-blocked", die_abort_while_blocked},
    {"segv-while-ignored", die_segv_while_ignored},
    {"abort-while-ignored", die_abort_while_ignored},
    {"handler-then-default", die_handler_then_default},
    {"handler-then-refault", die_handler_then_refault},
    {"handler-once", die_handler_once},
    {"handler-lives-on", die_handler_lives_on},
    {"handler-exits", die_handler_exits},
    {"handler-allocates", die_handler_allocates},
    {"ignored-lives-on", die_ignored_lives_on},
    {"crash-in-handler", die_crash_in_handler},
    {"no-altstack", die_no_altstack},
    {"no-altstack-overflow", die_no_altstack_overflow},
    {"own-altstack", die_own_altstack},
    {"tiny-altstack", die_tiny_altstack},
    {"two-threads-at-once", die_two_threads_at_once},
    {"detached-thread", die_detached_thread},
    {"cancelled-thread", die_cancelled_thread},
    {"thread-exit", die_thread_exit},
    {"many-threads", die_many_threads},
    {"fork-child", die_fork_child},
    {"fork-child-thread", die_fork_child_thread},
    {"vfork-child", die_vfork_child},
    {"clone-child", die_clone_child},
    {"fork-worker", die_fork_worker},
    {"system", die_system},
    {"setuid", die_setuid},
    {"chroot", die_chroot},
    {"namespaces", die_namespaces},
    {"pid-one", die_pid_one},
    {"pid-one-abort", die_pid_one_abort},
    {"closed-fds", die_closed_fds},
    {"close-range", die_close_range},
    {"stolen-fds", die_stolen_fds},
    {"exhausted-fds", die_exhausted_fds},
    {"closed-and-exhausted-fds", die_closed_and_exhausted_fds},
    {"no-core", die_no_core},
    {"seccomp-refusing", die_seccomp_refusing},
    {"seccomp-killing", die_seccomp_killing},
    {"atexit", die_atexit},
    {"constructor", die_constructor},
};

static void (*chosen)(void);
static pthread_barrier_t started;

static void *waiting_thread(void *unused) {
  pthread_barrier_wait(&started);
  for (;;) pause();
  return NULL;
}
static void *spinning_thread(void *unused) {
  pthread_barrier_wait(&started);
  for (;;) sink++;
  return NULL;
}
static pthread_barrier_t may_die;
static void *dying_thread(void *unused) {
  pthread_setname_np(pthread_self(), "dying");
  pthread_barrier_wait(&may_die);
  chosen();
  return NULL;
}

static pthread_barrier_t lock_held;
static void keep_lock(int signal_number) {
  pthread_barrier_wait(&lock_held);
  for (;;) pause();
}
static void *lock_thread(void *unused) {
  signal(SIGSEGV, keep_lock);
  die_malloc_lock();
  return NULL;
}

static void count_life(const char *path) {
  int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) fail(path);
  if (write(fd, "x", 1) != 1) fail(path);
  struct stat status;
  if (fstat(fd, &status) != 0) fail(path);
  close(fd);
  if (status.st_size > 1) die_sleep();
}

int main(int argc, char **argv) {
  int in_thread = 0, spin = 0, malloc_lock = 0, wait_first = 0, at = 1;
  long threads = 0;
  const char *life_file = NULL;
  for (; at < argc && argv[at][0] == '-'; at++) {
    if (strcmp(argv[at], "--thread") == 0) in_thread = 1;
    else if (strcmp(argv[at], "--spin") == 0) spin = 1;
    else if (strcmp(argv[at], "--malloc-lock") == 0) malloc_lock = 1;
    else if (strcmp(argv[at], "--wait") == 0) wait_first = 1;
    else if (strcmp(argv[at], "--threads") == 0 && at + 1 < argc) threads = strtol(argv[++at], NULL, 10);
    else if (strcmp(argv[at], "--say") == 0 && at + 1 < argc) fprintf(stderr, "%s\n", argv[++at]);
    else if (strcmp(argv[at], "--life-file") == 0 && at + 1 < argc) life_file = argv[++at];
    else if (strcmp(argv[at], "--list") == 0) {
      for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) puts(ways[i].name);
      return 0;
    } else {
      fprintf(stderr, "dies: unknown option %s\n", argv[at]);
      return 64;
    }
  }
  if (at < argc) {
    argument = at + 1 < argc ? argv[at + 1] : NULL;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
      if (strcmp(argv[at], ways[i].name) == 0) chosen = ways[i].die;
  }
  if (chosen == NULL) {
    fprintf(stderr, "dies: no such way; try --list\n");
    return 64;
  }
  pthread_barrier_init(&started, NULL, (unsigned)threads + 1);
  for (long i = 0; i < threads; i++) {
    pthread_t other;
    char name[16];
    snprintf(name, sizeof name, "%s-%ld", spin ? "spinner" : "waiter", i);
    if (pthread_create(&other, NULL, spin ? spinning_thread : waiting_thread, NULL) != 0) fail("pthread_create");
    pthread_setname_np(other, name);
  }
  pthread_barrier_wait(&started);
  if (wait_first) {
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    for (int c; (c = getchar()) != '\n' && c != EOF;) {}
  }
  if (life_file) count_life(life_file);
  pthread_t dying;
  if (in_thread) {
    pthread_barrier_init(&may_die, NULL, 2);
    if (pthread_create(&dying, NULL, dying_thread, NULL) != 0) fail("pthread_create");
  }
  if (malloc_lock) {
    pthread_t other;
    mallopt(M_ARENA_MAX, 1); /* the lock is everyone's */
    pthread_barrier_init(&lock_held, NULL, 2);
    if (pthread_create(&other, NULL, lock_thread, NULL) != 0) fail("pthread_create");
    pthread_barrier_wait(&lock_held);
    signal(SIGSEGV, SIG_DFL);
  }
  if (in_thread) {
    pthread_barrier_wait(&may_die);
    pthread_join(dying, NULL);
  } else {
    chosen();
  }
  return 96; /* the way did not end the program */
}
