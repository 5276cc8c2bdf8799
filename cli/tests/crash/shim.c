/* A library to preload into the command (LD_PRELOAD), so that the n-th system call that changes a file or a file system
 * kills the process or fails. crash.py drives it.
 *
 * It does not stand in for functions of the C library, which would miss every system call that is made without them
 * (the crates rustix and tempfile make some). The constructor installs a seccomp filter instead: the kernel turns each
 * call of the table below, by whatever thread and code, into a SIGSYS, and its handler makes the call, or does not. The
 * filter lets through what comes from one address, that of the system call instruction in `direct` below.
 *
 * Environment:
 *   CRASH_LOG=FILE    a line is added per call: number, name, and the names of the files, with tabs between them
 *   CRASH_AT=N        the call, counted from 1, over all threads
 *   CRASH_HOW=...     what happens at it:
 *     before, after   the process is killed before or after the call
 *     torn            half of the bytes are written, and the process is killed
 *     short           half of the bytes are written, and that is what the call returns
 *     wait            the file CRASH_READY is made, and the call waits until the file CRASH_GO is there
 *     NUMBER          the call is not made and fails with this errno
 *
 * The process must not start others: a filter outlives exec, its handler does not.
 *
 * Writing to a file through a shared mapping is stores, not calls. The mapping itself is counted, as `mmap`, and the
 * driver does not accept one.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#if !defined(__x86_64__) || !defined(__linux__)
#error "written for Linux on x86-64"
#endif

/* What the arguments of a call mean, and which of its calls count. */
enum kind {
    OPEN,    /* a path, flags: counts when it creates, truncates or opens for writing */
    OPEN_AT, /* the same with a folder before the path */
    OPEN_2,  /* openat2: flags in memory, where a filter cannot see them */
    WRITE,   /* a file, a buffer, its length */
    WRITE_V, /* a file, and a list of buffers */
    COPY,    /* copy_file_range: to the file in argument 2, length in argument 4 */
    SEND,    /* sendfile: to the file in argument 0, length in argument 3 */
    LOCK,    /* fcntl: counts when it locks */
    CLONE,   /* ioctl: counts when it clones a file */
    MAP,     /* mmap: counts when it is shared and can be written */
    FILE_,   /* a file, and what the filter need not know */
    PATH,    /* a path */
    PATHS,   /* two paths */
    AT,      /* a folder and a path */
    AT_AT,   /* a folder and a path, twice */
    LINK_AT, /* symlinkat: a path, a folder and a path */
    OTHER,   /* no file to name */
};

/* All system calls of the kernel that change a file or a file system, and those that lock one or make it durable. */
static const struct call {
    const char *name;
    int number;
    enum kind kind;
} CALLS[] = {
    {"open", SYS_open, OPEN},
    {"openat", SYS_openat, OPEN_AT},
    {"openat2", SYS_openat2, OPEN_2},
    {"creat", SYS_creat, PATH},
    {"write", SYS_write, WRITE},
    {"pwrite", SYS_pwrite64, WRITE},
    {"writev", SYS_writev, WRITE_V},
    {"pwritev", SYS_pwritev, WRITE_V},
    {"pwritev2", SYS_pwritev2, WRITE_V},
    {"copy_file_range", SYS_copy_file_range, COPY},
    {"sendfile", SYS_sendfile, SEND},
    {"splice", SYS_splice, COPY},
    {"vmsplice", SYS_vmsplice, FILE_},
    {"ioctl", SYS_ioctl, CLONE},
    {"mmap", SYS_mmap, MAP},
    {"truncate", SYS_truncate, PATH},
    {"ftruncate", SYS_ftruncate, FILE_},
    {"fallocate", SYS_fallocate, FILE_},
    {"rename", SYS_rename, PATHS},
    {"renameat", SYS_renameat, AT_AT},
    {"renameat2", SYS_renameat2, AT_AT},
    {"link", SYS_link, PATHS},
    {"linkat", SYS_linkat, AT_AT},
    {"symlink", SYS_symlink, PATHS},
    {"symlinkat", SYS_symlinkat, LINK_AT},
    {"unlink", SYS_unlink, PATH},
    {"unlinkat", SYS_unlinkat, AT},
    {"mkdir", SYS_mkdir, PATH},
    {"mkdirat", SYS_mkdirat, AT},
    {"rmdir", SYS_rmdir, PATH},
    {"mknod", SYS_mknod, PATH},
    {"mknodat", SYS_mknodat, AT},
    {"fsync", SYS_fsync, FILE_},
    {"fdatasync", SYS_fdatasync, FILE_},
    {"sync_file_range", SYS_sync_file_range, FILE_},
    {"syncfs", SYS_syncfs, FILE_},
    {"sync", SYS_sync, OTHER},
    {"msync", SYS_msync, OTHER},
    {"flock", SYS_flock, FILE_},
    {"fcntl", SYS_fcntl, LOCK},
    {"chmod", SYS_chmod, PATH},
    {"fchmod", SYS_fchmod, FILE_},
    {"fchmodat", SYS_fchmodat, AT},
    {"fchmodat2", 452, AT}, /* newer than the headers of some systems */
    {"chown", SYS_chown, PATH},
    {"lchown", SYS_lchown, PATH},
    {"fchown", SYS_fchown, FILE_},
    {"fchownat", SYS_fchownat, AT},
    {"utime", SYS_utime, PATH},
    {"utimes", SYS_utimes, PATH},
    {"futimesat", SYS_futimesat, AT},
    {"utimensat", SYS_utimensat, AT},
    {"setxattr", SYS_setxattr, PATH},
    {"lsetxattr", SYS_lsetxattr, PATH},
    {"fsetxattr", SYS_fsetxattr, FILE_},
    {"removexattr", SYS_removexattr, PATH},
    {"lremovexattr", SYS_lremovexattr, PATH},
    {"fremovexattr", SYS_fremovexattr, FILE_},
    {"io_uring_setup", SYS_io_uring_setup, OTHER}, /* whose calls would not be seen */
};
enum { CALL_COUNT = sizeof CALLS / sizeof *CALLS };

/* Flags with which a file may change when it is opened, or later through what is returned. */
#define CHANGING (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)

enum how { NOTHING, BEFORE, AFTER, TORN, SHORT, WAIT, ERROR };

static struct {
    const char *log, *ready, *go;
    long at;
    enum how how;
    int error;
} plan;
static atomic_long counted;

/* A system call as the kernel returns it: minus the errno when it fails. */
long direct(long number, long a, long b, long c, long d, long e, long f);
extern const char direct_end[];
__asm__(".text\n"
        ".globl direct, direct_end\n"
        ".hidden direct, direct_end\n"
        ".type direct, @function\n"
        "direct:\n"
        "    movq %rdi, %rax\n"
        "    movq %rsi, %rdi\n"
        "    movq %rdx, %rsi\n"
        "    movq %rcx, %rdx\n"
        "    movq %r8, %r10\n"
        "    movq %r9, %r8\n"
        "    movq 8(%rsp), %r9\n"
        "    syscall\n"
        "direct_end:\n"
        "    ret\n"
        ".size direct, . - direct\n");

/* An address as the argument of a system call. */
static long address(const void *pointer) {
    return (long)(intptr_t)pointer;
}

static const char *path_at(long argument) {
    return (const char *)(intptr_t)argument;
}

/* Ends the process as a power cut would: nothing of it runs any more. */
static _Noreturn void die(void) {
    direct(SYS_kill, direct(SYS_getpid, 0, 0, 0, 0, 0, 0), SIGKILL, 0, 0, 0, 0);
    for (;;) {
        direct(SYS_pause, 0, 0, 0, 0, 0, 0);
    }
}

/* The name of an open file, or of one in an open folder. */
static void name_open(char *name, size_t length, long file, const char *below) {
    char link[64];
    if (below != NULL && (below[0] == '/' || (int)file == AT_FDCWD)) {
        snprintf(name, length, "%s", below);
        return;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", (int)file);
    long got = direct(SYS_readlink, address(link), address(name), (long)length - 1, 0, 0, 0);
    size_t end = got < 0 ? 0 : (size_t)got;
    name[end] = '\0';
    if (below != NULL) {
        snprintf(name + end, length - end, "/%s", below);
    }
}

/* The names of the files that a call is about; the second is empty where there is one. */
static void name_files(const struct call *call, const long *arguments, char *first, char *second, size_t length) {
    const long *a = arguments;
    first[0] = second[0] = '\0';
    switch (call->kind) {
    case OPEN:
    case PATH:
        snprintf(first, length, "%s", path_at(a[0]));
        break;
    case OPEN_AT:
    case OPEN_2:
    case AT:
        name_open(first, length, a[0], a[1] == 0 ? NULL : path_at(a[1]));
        break;
    case PATHS:
        snprintf(first, length, "%s", path_at(a[0]));
        snprintf(second, length, "%s", path_at(a[1]));
        break;
    case AT_AT:
        name_open(first, length, a[0], path_at(a[1]));
        name_open(second, length, a[2], path_at(a[3]));
        break;
    case LINK_AT:
        snprintf(first, length, "%s", path_at(a[0]));
        name_open(second, length, a[1], path_at(a[2]));
        break;
    case COPY:
        name_open(first, length, a[2], NULL);
        break;
    case MAP:
        name_open(first, length, a[4], NULL);
        break;
    case WRITE:
    case WRITE_V:
    case SEND:
    case LOCK:
    case CLONE:
    case FILE_:
        name_open(first, length, a[0], NULL);
        break;
    case OTHER:
        break;
    }
}

/* Whether a call that the filter has let the handler see is one that counts. */
static int counts(const struct call *call, const long *arguments, const char *file) {
    if (call->kind == OPEN_2) {
        const struct open_how *how = (const struct open_how *)(intptr_t)arguments[2];
        if ((how->flags & CHANGING) == 0) {
            return 0;
        }
    }
    static const char *const NOT_FILES[] = {"/dev/", "/proc/", "/sys/", "pipe:", "socket:", "anon_inode:"};
    for (size_t i = 0; i < sizeof NOT_FILES / sizeof *NOT_FILES; i++) {
        if (strncmp(file, NOT_FILES[i], strlen(NOT_FILES[i])) == 0) {
            /* Shared memory is a file system like any other, and tests may run there. */
            return strncmp(file, "/dev/shm/", 9) == 0;
        }
    }
    return 1;
}

static void add_line(long number, const char *name, const char *first, const char *second) {
    char line[2 * 4096 + 128];
    int length = snprintf(line, sizeof line, "%ld\t%s\t%s\t%s\n", number, name, first, second);
    long file = direct(SYS_open, address(plan.log), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644, 0, 0, 0);
    direct(SYS_write, file, address(line), length, 0, 0, 0);
    direct(SYS_close, file, 0, 0, 0, 0, 0);
}

/* Makes the call with half of its bytes, at least one. */
static long half(const struct call *call, const long *arguments) {
    long a[6];
    struct iovec part;
    memcpy(a, arguments, sizeof a);
    switch (call->kind) {
    case WRITE:
        a[2] = (a[2] + 1) / 2;
        break;
    case WRITE_V:
        part = *(const struct iovec *)(intptr_t)a[1];
        part.iov_len = (part.iov_len + 1) / 2;
        a[1] = address(&part);
        a[2] = 1;
        break;
    case COPY:
        a[4] = (a[4] + 1) / 2;
        break;
    case SEND:
        a[3] = (a[3] + 1) / 2;
        break;
    default:
        break;
    }
    return direct(call->number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* Waits for the driver, which runs another process meanwhile; for twenty seconds at most. */
static void wait_for_go(void) {
    const struct timespec nap = {0, 1000000};
    long file = direct(SYS_open, address(plan.ready), O_WRONLY | O_CREAT | O_CLOEXEC, 0644, 0, 0, 0);
    direct(SYS_close, file, 0, 0, 0, 0, 0);
    for (int i = 0; i < 20000 && direct(SYS_access, address(plan.go), F_OK, 0, 0, 0, 0) != 0; i++) {
        direct(SYS_nanosleep, address(&nap), 0, 0, 0, 0, 0);
    }
}

/* What a call of the program returns. */
static long answer(const struct call *call, const long *a) {
    char first[4096], second[4096];
    long result, number;
    name_files(call, a, first, second, sizeof first);
    if (!counts(call, a, first)) {
        return direct(call->number, a[0], a[1], a[2], a[3], a[4], a[5]);
    }
    number = atomic_fetch_add(&counted, 1) + 1;
    if (plan.log != NULL) {
        add_line(number, call->name, first, second);
    }
    switch (number == plan.at ? plan.how : NOTHING) {
    case BEFORE:
        die();
    case TORN:
        half(call, a);
        die();
    case SHORT:
        return half(call, a);
    case ERROR:
        return -plan.error;
    case WAIT:
        wait_for_go();
        break;
    case AFTER:
    case NOTHING:
        break;
    }
    result = direct(call->number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (number == plan.at && plan.how == AFTER) {
        die();
    }
    return result;
}

static void on_call(int signal, siginfo_t *about, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const long arguments[6] = {registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                               registers[REG_R10], registers[REG_R8],  registers[REG_R9]};
    (void)signal;
    for (size_t i = 0; i < CALL_COUNT; i++) {
        if (CALLS[i].number == about->si_syscall) {
            registers[REG_RAX] = answer(&CALLS[i], arguments);
            return;
        }
    }
    registers[REG_RAX] = -ENOSYS;
}

static _Noreturn void fail(const char *what) {
    perror(what);
    _exit(99);
}

/* The filter, one instruction after another. Jumps are counted in instructions to pass over. */
static struct sock_filter program[16 * CALL_COUNT];
static unsigned short program_length;

static void add(unsigned short code, uint32_t value, uint8_t if_true, uint8_t if_false) {
    program[program_length++] = (struct sock_filter){code, if_true, if_false, value};
}

static void load(size_t offset) {
    add(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

/* The lower half of an argument, on a little-endian machine. */
static void load_argument(size_t index) {
    load(offsetof(struct seccomp_data, args) + 8 * index);
}

static void finish(uint32_t action) {
    add(BPF_RET | BPF_K, action, 0, 0);
}

static void trap_if_any(size_t argument, uint32_t bits) {
    load_argument(argument);
    add(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1);
    finish(SECCOMP_RET_TRAP);
}

static void trap_if_one_of(size_t argument, const uint32_t *values, size_t count) {
    load_argument(argument);
    for (size_t i = 0; i < count; i++) {
        add(BPF_JMP | BPF_JEQ | BPF_K, values[i], 0, 1);
        finish(SECCOMP_RET_TRAP);
    }
}

/* What becomes of a call of a kind: trapped, or let through. */
static void add_kind(enum kind kind) {
    static const uint32_t LOCKS[] = {F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW};
    static const uint32_t CLONES[] = {FICLONE, FICLONERANGE, FIDEDUPERANGE};
    switch (kind) {
    case OPEN:
        trap_if_any(1, CHANGING);
        break;
    case OPEN_AT:
        trap_if_any(2, CHANGING);
        break;
    case WRITE:
    case WRITE_V:
        /* Not what is said on the standard streams. */
        load_argument(0);
        add(BPF_JMP | BPF_JGT | BPF_K, STDERR_FILENO, 0, 1);
        finish(SECCOMP_RET_TRAP);
        break;
    case LOCK:
        trap_if_one_of(1, LOCKS, sizeof LOCKS / sizeof *LOCKS);
        break;
    case CLONE:
        trap_if_one_of(1, CLONES, sizeof CLONES / sizeof *CLONES);
        break;
    case MAP:
        load_argument(2);
        add(BPF_JMP | BPF_JSET | BPF_K, PROT_WRITE, 0, 3);
        trap_if_any(3, MAP_SHARED);
        break;
    default:
        finish(SECCOMP_RET_TRAP);
        break;
    }
    finish(SECCOMP_RET_ALLOW);
}

static void install_filter(void) {
    uint64_t own = (uint64_t)(uintptr_t)direct_end;
    load(offsetof(struct seccomp_data, arch));
    add(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
    finish(SECCOMP_RET_KILL_PROCESS);
    load(offsetof(struct seccomp_data, instruction_pointer));
    add(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)own, 0, 3);
    load(offsetof(struct seccomp_data, instruction_pointer) + 4);
    add(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(own >> 32), 0, 1);
    finish(SECCOMP_RET_ALLOW);
    for (size_t i = 0; i < CALL_COUNT; i++) {
        unsigned short jump;
        load(offsetof(struct seccomp_data, nr));
        jump = program_length;
        add(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)CALLS[i].number, 0, 0);
        add_kind(CALLS[i].kind);
        program[jump].jf = (uint8_t)(program_length - jump - 1);
    }
    finish(SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {program_length, program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1L, 0L, 0L, 0L) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
        fail("crash shim: cannot install a seccomp filter");
    }
}

__attribute__((constructor)) static void begin(void) {
    static const char *const NAMES[] = {"", "before", "after", "torn", "short", "wait"};
    const char *at = getenv("CRASH_AT"), *how = getenv("CRASH_HOW");
    struct sigaction action = {0};
    plan.log = getenv("CRASH_LOG");
    plan.ready = getenv("CRASH_READY");
    plan.go = getenv("CRASH_GO");
    plan.at = at == NULL ? 0 : strtol(at, NULL, 10);
    if (how != NULL) {
        plan.how = ERROR;
        plan.error = (int)strtol(how, NULL, 10);
        for (int i = BEFORE; i <= WAIT; i++) {
            plan.how = strcmp(how, NAMES[i]) == 0 ? (enum how)i : plan.how;
        }
    }
    action.sa_sigaction = on_call;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
    if (sigaction(SIGSYS, &action, NULL) != 0) {
        fail("crash shim: cannot handle SIGSYS");
    }
    install_filter();
}
