/* The byte layout of the shared-memory ring and of the bell: the one source of
 * truth. The in-process handler writes it, guardian reads it with pread() and
 * trusts not one byte of it.
 *
 * One file (`ring`) a life, made by guardian, mapped MAP_SHARED by the program
 * and by every process it forks; writers never lock. All numbers are of the
 * machine's own byte order. A writer may be killed at any instruction: every
 * record carries what a reader needs to tell a whole record from a torn one.
 *
 * Changing a byte here means a new GUARDIAN_RING_VERSION. */
#ifndef GUARDIAN_RING_H
#define GUARDIAN_RING_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GUARDIAN_RING_MAGIC UINT64_C(0x31474e4952445247) /* "GRDRING1" */
#define GUARDIAN_RING_VERSION 2u

/* The program finds its channel by this variable: a folder that holds `ring`,
 * `bell` and `notify`. */
#define GUARDIAN_CHANNEL_VARIABLE "GUARDIAN_CHANNEL"
#define GUARDIAN_RING_FILE "ring"
#define GUARDIAN_BELL_FILE "bell"
#define GUARDIAN_NOTIFY_FILE "notify"

enum {
  GUARDIAN_RING_HEADER_SIZE = 4096,
  GUARDIAN_RING_SLOT_COUNT = 4,
  GUARDIAN_RING_SLOT_SIZE = 40960,
  GUARDIAN_RING_STACK_SIZE = 32768,
  GUARDIAN_RING_REGISTER_COUNT = 40,
  GUARDIAN_RING_SIGINFO_SIZE = 128,
  GUARDIAN_RING_THREAD_NAME_SIZE = 16,
  GUARDIAN_RING_ABORT_MESSAGE_SIZE = 1024,
  GUARDIAN_RING_EXCEPTION_TYPE_SIZE = 256,
  GUARDIAN_RING_EXCEPTION_REASON_SIZE = 1024,
  GUARDIAN_RING_EXCEPTION_FRAME_COUNT = 64,
  GUARDIAN_RING_CRUMB_COUNT = 1024,
  GUARDIAN_RING_CRUMB_SIZE = 256,
  GUARDIAN_RING_CRUMB_CATEGORY_SIZE = 24,
  GUARDIAN_RING_CRUMB_MESSAGE_SIZE = 192,
  GUARDIAN_RING_ANNOTATION_COUNT = 64,
  GUARDIAN_RING_ANNOTATION_SIZE = 512,
  GUARDIAN_RING_ANNOTATION_KEY_SIZE = 64,
  GUARDIAN_RING_ANNOTATION_VALUE_SIZE = 432,

  GUARDIAN_RING_SLOT_OFFSET = GUARDIAN_RING_HEADER_SIZE,
  GUARDIAN_RING_CRUMB_OFFSET =
      GUARDIAN_RING_SLOT_OFFSET + GUARDIAN_RING_SLOT_COUNT * GUARDIAN_RING_SLOT_SIZE,
  GUARDIAN_RING_ANNOTATION_OFFSET =
      GUARDIAN_RING_CRUMB_OFFSET + GUARDIAN_RING_CRUMB_COUNT * GUARDIAN_RING_CRUMB_SIZE,
  GUARDIAN_RING_SIZE = GUARDIAN_RING_ANNOTATION_OFFSET +
                       GUARDIAN_RING_ANNOTATION_COUNT * GUARDIAN_RING_ANNOTATION_SIZE,
};

/* Offset 0 of the ring. The first part is written by guardian before the
 * program starts, the second by the program. */
struct guardian_ring_header {
  /* Written by guardian. */
  uint64_t magic;              /* GUARDIAN_RING_MAGIC */
  uint32_t version;            /* GUARDIAN_RING_VERSION */
  uint32_t size;               /* GUARDIAN_RING_SIZE, bytes */
  uint32_t life;               /* number of the life, from 1 */
  int32_t guardian_pid;        /* for PR_SET_PTRACER, in guardian's pid namespace */
  uint32_t capture_timeout_ms; /* how long a handler waits for its release at most */
  uint32_t handler_runs_max;   /* further runs of the handler do nothing but die */
  uint8_t reserved_guardian[224];

  /* Written by the program. */
  uint32_t handler_flags;     /* enum guardian_handler_flag, or-ed in atomically */
  uint32_t handler_runs;      /* how often the handler ran, counted atomically */
  uint32_t slot_next;         /* crashes that asked for a slot */
  uint32_t main_pid;          /* first process of the life, in its own pid namespace; 0: unknown */
  uint64_t crumb_next;        /* breadcrumbs begun so far; index = value % count */
  uint64_t heartbeat;         /* grows by one with each guardian_heartbeat() */
  uint64_t replaced_signals;  /* bit n-1: the program has a handler of its own for signal n */
  uint8_t reserved_program[216];
};

enum guardian_handler_flag {
  GUARDIAN_HANDLER_LOADED = 1u << 0,      /* the constructor ran and the ring is mapped */
  GUARDIAN_HANDLER_INSTALLED = 1u << 1,   /* the dispositions are in place */
  GUARDIAN_HANDLER_BELL = 1u << 2,        /* the bell is open */
  GUARDIAN_HANDLER_ALTSTACK = 1u << 3,    /* the main thread has our alternate stack */
  GUARDIAN_HANDLER_NO_MEMORY = 1u << 4,   /* an alternate stack could not be had */
  GUARDIAN_HANDLER_LIBRARY = 1u << 5,     /* the program uses the API itself */
};

enum guardian_slot_state {
  GUARDIAN_SLOT_FREE = 0,
  GUARDIAN_SLOT_WRITING = 1,  /* still so at the ending: a torn record */
  GUARDIAN_SLOT_COMPLETE = 2,
};

/* Which parts of a crash record are whole; set one after another, in order of
 * rising risk, so that a fault inside the handler keeps what came before. */
enum guardian_slot_part {
  GUARDIAN_PART_SIGNAL = 1u << 0,
  GUARDIAN_PART_REGISTERS = 1u << 1,
  GUARDIAN_PART_THREAD = 1u << 2,
  GUARDIAN_PART_ABORT_MESSAGE = 1u << 3,
  GUARDIAN_PART_STACK = 1u << 4,
  GUARDIAN_PART_EXCEPTION = 1u << 5,
};

enum guardian_architecture {
  GUARDIAN_ARCHITECTURE_X86_64 = 62,   /* EM_X86_64 */
  GUARDIAN_ARCHITECTURE_AARCH64 = 183, /* EM_AARCH64 */
};

enum guardian_exception_language {
  GUARDIAN_EXCEPTION_NONE = 0,
  GUARDIAN_EXCEPTION_CXX = 1,
  GUARDIAN_EXCEPTION_SWIFT = 2,
  GUARDIAN_EXCEPTION_API = 3, /* told by the program itself */
};

/* One crash. Registers: x86-64 in the order of ucontext's gregs (REG_R8 … ),
 * AArch64 x0…x30, sp, pc, pstate. */
struct guardian_crash_record {
  uint32_t state;   /* enum guardian_slot_state */
  uint32_t parts;   /* enum guardian_slot_part */
  uint32_t release; /* a futex: the handler waits while it is 0 */
  uint32_t architecture;
  int32_t pid; /* in the program's own pid namespace */
  int32_t tid;
  int32_t signal;
  int32_t code;
  int32_t error;
  int32_t sender_pid; /* of siginfo; meaningless for a fault */
  uint32_t sender_uid;
  uint32_t register_count;
  uint64_t address; /* si_addr; meaningless for a signal that was sent */
  uint64_t realtime_ns;
  uint64_t monotonic_ns;
  uint64_t pc;
  uint64_t sp;
  uint64_t context_address;  /* of the ucontext_t in the program's memory */
  uint64_t altstack_address; /* of the stack the handler ran on, 0 if none */
  uint64_t altstack_size;
  uint64_t trap_number; /* x86-64: REG_TRAPNO */
  uint64_t error_code;  /* x86-64: REG_ERR */
  uint64_t registers[GUARDIAN_RING_REGISTER_COUNT];
  uint8_t siginfo[GUARDIAN_RING_SIGINFO_SIZE];
  char thread_name[GUARDIAN_RING_THREAD_NAME_SIZE];
  uint32_t abort_message_length;
  uint32_t exception_language; /* enum guardian_exception_language */
  uint32_t exception_type_length;
  uint32_t exception_reason_length;
  uint32_t exception_frame_count;
  uint32_t stack_length;
  uint64_t stack_address; /* where stack[0] was in the program's memory */
  char abort_message[GUARDIAN_RING_ABORT_MESSAGE_SIZE];
  char exception_type[GUARDIAN_RING_EXCEPTION_TYPE_SIZE];
  char exception_reason[GUARDIAN_RING_EXCEPTION_REASON_SIZE];
  uint64_t exception_frames[GUARDIAN_RING_EXCEPTION_FRAME_COUNT];
  uint8_t stack[GUARDIAN_RING_STACK_SIZE];
};

/* One breadcrumb. `sequence` is 2n+1 while breadcrumb n is written and 2n+2
 * when it is whole; 0 is a place never used. */
struct guardian_crumb {
  uint64_t sequence;
  uint64_t realtime_ns;
  int32_t pid;
  int32_t tid;
  uint8_t level; /* enum guardian_level of guardian.h */
  uint8_t category_length;
  uint16_t message_length;
  uint32_t reserved;
  char category[GUARDIAN_RING_CRUMB_CATEGORY_SIZE];
  char message[GUARDIAN_RING_CRUMB_MESSAGE_SIZE];
  uint64_t end; /* as `sequence` once it is whole, else 0: who copies the ring from its beginning
                   to its end sees by it that a place was taken over while he copied it */
};

/* One annotation. `sequence` is odd while it is written; 0 is unused. */
struct guardian_annotation {
  uint64_t sequence;
  uint16_t key_length;
  uint16_t value_length; /* 0: removed */
  uint32_t reserved;
  char key[GUARDIAN_RING_ANNOTATION_KEY_SIZE];
  char value[GUARDIAN_RING_ANNOTATION_VALUE_SIZE];
};

/* The bell: one datagram on the socket `bell`. Who sent it is what the kernel
 * says (SCM_CREDENTIALS), never what it contains. */
#define GUARDIAN_BELL_MAGIC 0x4c4c4542u /* "BELL" */
struct guardian_bell {
  uint32_t magic;
  uint32_t version; /* GUARDIAN_RING_VERSION */
  uint32_t slot;    /* index of the crash record, < GUARDIAN_RING_SLOT_COUNT */
  int32_t tid;      /* in the program's own pid namespace; map it by NSpid */
  int32_t signal;
  uint32_t reserved;
};

static_assert(sizeof(struct guardian_ring_header) == 512, "header");
static_assert(offsetof(struct guardian_ring_header, handler_flags) == 256, "header, program's part");
static_assert(sizeof(struct guardian_crash_record) <= GUARDIAN_RING_SLOT_SIZE, "crash record");
static_assert(sizeof(struct guardian_crumb) == GUARDIAN_RING_CRUMB_SIZE, "breadcrumb");
static_assert(sizeof(struct guardian_annotation) == GUARDIAN_RING_ANNOTATION_SIZE, "annotation");
static_assert(sizeof(struct guardian_bell) == 24, "bell");

#ifdef __cplusplus
}
#endif
#endif
