/** front_init.h - the messages between the front and a sandbox's init over init.sock.
 *
 *  SOCK_SEQPACKET; fixed size for each type, host order, texts NUL-terminated in their field. init listens (so that
 *  SO_PEERCRED shows the slot's uid), the newest connection wins, the one before is closed. Upon a connection init
 * sends FI_WELCOME, then FI_STARTED (with descriptors) for each command it knows and FI_EXITED for those that ended,
 * then FI_CURRENT. The keeper of a guest (isolation/guest) speaks it, too, and knows of no command. Both ends treat the
 * other's bytes as hostile. This folder is compiled into the static init: libc only. */
#pragma once

#include "shared/base/error.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FRONT_INIT_VERSION     4
#define FRONT_INIT_ID_BYTES    65   /* a command's id with NUL: 1..64 of A-Za-z0-9._- */
#define FRONT_INIT_COMMANDS    1024 /* commands init keeps at once, running or not forgotten */
#define FRONT_INIT_CELLS_MAX   1000 /* columns or rows of a terminal */
#define FRONT_INIT_FILES_MIN   16   /* open files of a command: fewer, and it does not start */
#define FRONT_INIT_FILES_MAX   1048576
#define FRONT_INIT_BLOB_MAX    2097152  /* 2 MiB */
#define FRONT_INIT_TEXTS_MAX   131072   /* arguments, and as many variables */
#define FRONT_INIT_ZYGOTES     4        /* processes of which commands are forked */
#define FRONT_INIT_PROGRAM_MAX 67108864 /* 64 MiB */
#define FRONT_INIT_PROGRAM     3        /* the descriptor that a command finds its program as */

enum front_init_type {
    /* front -> init */
    FI_START = 1, /* + descriptors of enum front_init_start_fd */
    FI_SIGNAL,
    FI_KILL, /* the command and all it started: cgroup.kill of its own run/<n> */
    FI_EOF,  /* close what init keeps of stdin; of a terminal nothing while its command runs, then all but the output */
    FI_FORGET,    /* an ended command: close what init keeps of it */
    FI_TERMINATE, /* SIGTERM to all, SIGKILL after grace, then init exits */
    FI_DEADLINE,  /* the hard deadline moves */
    FI_HELPER,    /* + 1 descriptor: the socket of a new helper process; what goes wrong is told there */
    FI_DIAL,      /* a connection to a port in the sandbox; each is answered by FI_DIALED */
    FI_LISTENERS, /* what asks the kernel for the sandbox's sockets; answered by FI_LISTENERS_IS */
    /* init -> front */
    FI_WELCOME,
    FI_STARTED, /* + descriptors of enum front_init_fd */
    FI_REFUSED, /* FI_START failed: a struct error (NOT_FOUND command, INVALID cwd, NO_CAPACITY ...) */
    FI_EXITED,
    FI_CURRENT,     /* everything known has been told */
    FI_DIALED,      /* + 1 descriptor when error_number is 0: a TCP socket whose connect(2) has begun, non-blocking; of
                       a guest perhaps a UNIX one */
    FI_LISTENERS_IS /* + 1 descriptor when error_number is 0: a NETLINK_SOCK_DIAG socket, non-blocking */
};

/* Descriptors of FI_START: one, two (with_program), or three (zygote). All are sealed memfds. */
enum front_init_start_fd {
    FI_START_FD_COMMAND, /* see struct front_init_command */
    FI_START_FD_PROGRAM, /* any bytes; the command finds them as its descriptor FRONT_INIT_PROGRAM, as this very open
                            file: one that nobody else shares, O_RDONLY */
    FI_START_FD_ZYGOTE,  /* the command that the zygote is started by, if it does not run yet */
    FI_START_FDS
};

/* Descriptors of FI_STARTED, in this order. The front's copies; init keeps its own of the same open files, so what is
 * in a pipe or memfd, and the memfds' file positions, outlive a front. Bytes move by splice alone. */
enum front_init_fd {
    FI_FD_STDOUT_PIPE,   /* read end, non-blocking */
    FI_FD_STDERR_PIPE,   /* read end */
    FI_FD_STDOUT_MEMORY, /* memfd: its file position is the stream's length; moved there by splice only */
    FI_FD_STDERR_MEMORY,
    FI_FD_STDIN_PIPE,   /* write end, non-blocking; absent (only 4 descriptors) when stdin is /dev/null or was closed */
    FI_FD_STDIN_MEMORY, /* memfd: its size is what was accepted, its position what was delivered; F_SEAL_GROW: no more
                         */
    FI_FDS
};

/* The same of a terminal (fi_started.terminal): all of them, or, once it is over (has_stdin 0), the memory of stdout
 * alone. */
enum front_init_terminal_fd {
    FI_TERMINAL_FD_MASTER,   /* read and write, non-blocking */
    FI_TERMINAL_FD_OUT_READ, /* a pipe between master and memfd, non-blocking */
    FI_TERMINAL_FD_OUT_WRITE,
    FI_TERMINAL_FD_STDOUT_MEMORY,
    FI_TERMINAL_FD_IN_READ, /* a pipe between stdin's memfd and master, non-blocking */
    FI_TERMINAL_FD_IN_WRITE,
    FI_TERMINAL_FD_STDIN_MEMORY,
    FI_TERMINAL_FDS
};
#define FI_TERMINAL_OVER_FDS 1
#define FI_FDS_MAX           7 /* of any message */

struct fi_start {
    char id[FRONT_INIT_ID_BYTES];
    uint8_t with_stdin;     /* 1: a pipe, 0: /dev/null; 1 for a terminal */
    uint8_t terminal;       /* 1: a new terminal is stdin, stdout, stderr and the controlling terminal */
    uint8_t as_root;        /* 1: as uid 0 of the user namespace, with the capabilities of package managers; REFUSED
                               (FORBIDDEN) where the launcher did not allow it */
    uint16_t columns, rows; /* of the terminal, 1..FRONT_INIT_CELLS_MAX; else 0 */
    uint64_t timeout_ms;    /* 0: none; init kills the tree then, counted from the start, CLOCK_BOOTTIME */
    uint32_t open_files;    /* RLIMIT_NOFILE, 16..1048576, cut to what there is; 0: as at the start of the sandbox */
    uint8_t with_program;   /* 1: it has a program */
    uint8_t zygote;         /* 0: it is executed. 1..FRONT_INIT_ZYGOTES: it is forked from this zygote, see
                               init/zygotes.h; with a program, without terminal, not as root */
    uint8_t merges;         /* 1: what it writes to stderr goes to stdout, in the order of the writing; no terminal */
    uint8_t reserved[1];
};

struct fi_signal {
    char id[FRONT_INIT_ID_BYTES];
    uint8_t reserved[3];
    int32_t number; /* 1..64; to the command's process group */
};

struct fi_name { /* FI_KILL, FI_EOF, FI_FORGET */
    char id[FRONT_INIT_ID_BYTES];
};

struct fi_terminate {
    uint64_t grace_ms;
    char reason[64];
};

struct fi_helper {
    uint32_t kind; /* FRONT_FILES_HELPER_KIND */
};

#define FI_FAMILY_GUEST 1

struct fi_dial {
    uint64_t number;     /* the front's, for the answer */
    uint16_t port;       /* 1..65535; 0 of a guest */
    uint8_t family;      /* 4: of 127.0.0.1, 6: of ::1; FI_FAMILY_GUEST: the front inside, asked of a keeper */
    uint8_t reserved[5]; /* 0 */
};

struct fi_deadline {
    uint64_t boot_ns; /* CLOCK_BOOTTIME; 0 none */
};

struct fi_welcome {
    uint32_t version;
    uint32_t commands;
    uint64_t deadline_boot_ns;
};

struct fi_started {
    char id[FRONT_INIT_ID_BYTES];
    uint8_t has_stdin; /* 0: it has none, or FI_EOF closed it */
    uint8_t terminal;
    uint8_t reserved[1];
    int32_t pid; /* as seen inside */
    uint64_t start_boot_ns, timeout_ms;
    uint64_t stdin_bytes; /* what was delivered to one that was closed; else 0 */
    int64_t start_wall_ms;
    char title[256]; /* the command as text, cut: for GET /processes */
};

struct fi_refused {
    char id[FRONT_INIT_ID_BYTES];
    uint8_t reserved[7];
    struct error error;
};

struct fi_exited {
    char id[FRONT_INIT_ID_BYTES];
    uint8_t timed_out; /* init killed it at its timeout */
    uint8_t killed;    /* FI_KILL or FI_TERMINATE ended it */
    uint8_t reserved;
    int32_t wait_status; /* wait(2) */
    uint64_t wall_ms, cpu_ms;
    uint64_t max_rss_bytes;
    int64_t end_wall_ms;
};

struct fi_dialed {
    uint64_t number;
    int32_t error_number; /* errno, or 0 */
    uint32_t reserved;
};

struct fi_listeners {
    int32_t error_number; /* errno: the kernel gives none; 0 */
    uint32_t reserved;
};

struct front_init_message {
    uint32_t type;
    uint32_t reserved;
    union {
        struct fi_start start;
        struct fi_signal signal;
        struct fi_name name;
        struct fi_terminate terminate;
        struct fi_deadline deadline;
        struct fi_helper helper;
        struct fi_welcome welcome;
        struct fi_started started;
        struct fi_refused refused;
        struct fi_exited exited;
        struct fi_dial dial;
        struct fi_dialed dialed;
        struct fi_listeners listeners;
    } as;
};

/** The bytes of a packet of this type; 0 for an unknown one. */
size_t front_init_size(uint32_t type) MUST_USE;

enum front_init_end { FI_FROM_FRONT, FI_FROM_INIT };

/** Checks a packet: size, type, direction, texts, ranges, the count of descriptors. ERROR_INVALID says what. */
bool front_init_check(const struct front_init_message *message, size_t size, size_t fd_count,
                      enum front_init_end sender, struct error *err) MUST_USE;
/** One packet, as fd_send_message: system_errno EAGAIN when the socket is full. Zero the message first. */
bool front_init_send(int socket, const struct front_init_message *message, const int *fds, size_t fd_count,
                     struct error *err) MUST_USE;
/** 1 got one, 0 the end, -1 error (system_errno EAGAIN: none there; ERROR_INVALID: a bad packet, its descriptors
 * closed). `fds` has room for FI_FDS_MAX. */
int front_init_receive(int socket, struct front_init_message *message, enum front_init_end sender, int *fds,
                       size_t *fd_count, struct error *err) MUST_USE;

/** What a START's memfd holds: u32 argument count (its highest bit: is_line), u32 variable count, then NUL-ended texts:
 * cwd, arguments, variables "NAME=value". */
struct front_init_command {
    const char *cwd;
    char *const *arguments; /* NULL-ended */
    char *const *variables; /* NULL-ended */
    bool is_line;           /* "/bin/bash", "-c", a line: where there is no bash, /bin/sh runs it */
};

/** A sealed memfd of the command; -1 with ERROR_TOO_LARGE over FRONT_INIT_BLOB_MAX or 131,071 bytes for one text
 *  (execve(2), MAX_ARG_STRLEN), ERROR_INVALID without arguments (a line: other than three), without an absolute
 *  cwd or for a variable without a name or =. `variables` may be NULL: none. */
int front_init_command_seal(const struct front_init_command *command, struct error *err) MUST_USE;

/** True for a memfd that can neither be written nor cut any more, of 1..FRONT_INIT_PROGRAM_MAX bytes: a program.
 * INVALID, TOO_LARGE. */
bool front_init_program_check(int fd, struct error *err) MUST_USE;

/** Reads it back; checks seals (F_SEAL_WRITE and F_SEAL_SHRINK), size and every count. The texts point into *memory,
 * and both arrays are one allocation at *memory: the caller frees *memory alone. */
bool front_init_command_read(int fd, struct front_init_command *command, void **memory, struct error *err) MUST_USE;
