/* Faults for tests, preloaded into the process that has the extension: reads, opens,
 * renames and deletions of files, what the system says about free space, and allocations
 * of one library, fail when and how a test says.
 * tests/fault/shim.py loads it and gives its functions names in Python.
 *
 * One fault is armed at a time. For files it concerns the calls of one kind whose
 * path contains a text: the n-th from now on and as many more as wanted. Nothing
 * armed, every call passes through. Any thread may call anything. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum shim_op { OP_NONE, OP_READ, OP_OPEN, OP_RENAME, OP_UNLINK, OP_STATVFS, OP_CHANGE };

enum shim_kind {
    KIND_ERROR, /* value: errno */
    KIND_SHORT, /* value: bytes that arrive at most; what lies behind them is spoilt */
    KIND_HANG,  /* value: milliseconds until it goes on, or until shim_off */
    KIND_FLIP,  /* value: the byte that arrives wrong */
    KIND_KILL,  /* value: the signal that ends the process instead of the call */
    KIND_FREE   /* value: bytes that are free */
};

typedef struct shim_fault {
    enum shim_kind kind;
    long value;
} shim_fault;

void shim_arm(int op, const char *text, long n, long times, int kind, long value);
void shim_off(void);
long shim_calls(void);
long shim_faults(void);
int shim_hanging(void);
int shim_arm_memory(const char *library, long n, int stay);
long shim_allocations(void);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int op_armed;
static char wanted[256];
static long first, left; /* calls until the first fault; faults to come, -1: for ever */
static shim_fault armed;
static _Atomic long calls, faults;
static _Atomic int hanging;
static _Atomic unsigned round_no; /* hangs of an earlier round go on at once */

static ssize_t (*real_pread)(int, void *, size_t, off_t);
static ssize_t (*real_pread64)(int, void *, size_t, off64_t);
static ssize_t (*real_preadv2)(int, const struct iovec *, int, off_t, int);
static ssize_t (*real_preadv64v2)(int, const struct iovec *, int, off64_t, int);
static int (*real_open)(const char *, int, ...);
static int (*real_open64)(const char *, int, ...);
static int (*real_rename)(const char *, const char *);
static int (*real_unlink)(const char *);
static int (*real_statvfs)(const char *, struct statvfs *);
static int (*real_statvfs64)(const char *, struct statvfs64 *);
static void *(*real_mmap64)(void *, size_t, int, int, int, off64_t);

/* ISO C has no cast between the two kinds of pointer. */
static void find(void *function, const char *name)
{
    void *p = dlsym(RTLD_NEXT, name);

    memcpy(function, &p, sizeof p);
}

__attribute__((constructor)) static void find_all(void)
{
    find(&real_pread, "pread");
    find(&real_pread64, "pread64");
    find(&real_preadv2, "preadv2");
    find(&real_preadv64v2, "preadv64v2");
    find(&real_open, "open");
    find(&real_open64, "open64");
    find(&real_rename, "rename");
    find(&real_unlink, "unlink");
    find(&real_statvfs, "statvfs");
    find(&real_statvfs64, "statvfs64");
    find(&real_mmap64, "mmap64");
}

/* ---- files -------------------------------------------------------------------- */

/* n 1: the next call; times -1: that one and all after it. */
void shim_arm(int op, const char *text, long n, long times, int kind, long value)
{
    pthread_mutex_lock(&lock);
    snprintf(wanted, sizeof wanted, "%s", text);
    first = n;
    left = times;
    armed.kind = (enum shim_kind)kind;
    armed.value = value;
    calls = faults = 0;
    op_armed = op;
    pthread_mutex_unlock(&lock);
}

long shim_calls(void)
{
    return calls; /* that the fault is about, since shim_arm */
}

long shim_faults(void)
{
    return faults;
}

int shim_hanging(void)
{
    return hanging;
}

/* The fault of this call, if it has one. */
static int due(enum shim_op op, const char *path, shim_fault *out)
{
    int yes = 0;

    pthread_mutex_lock(&lock);
    if (op_armed == (int)op && strstr(path, wanted)) {
        yes = ++calls >= first && left;
        faults += yes;
        if (yes && left > 0) left--;
        *out = armed;
    }
    pthread_mutex_unlock(&lock);
    return yes;
}

/* Whether the next call would have it. */
static int is_due(const char *path)
{
    int yes;

    pthread_mutex_lock(&lock);
    yes = op_armed == OP_READ && strstr(path, wanted) && calls + 1 >= first && left;
    pthread_mutex_unlock(&lock);
    return yes;
}

static int path_of(int fd, char *path, size_t room)
{
    char link[64];
    ssize_t n;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, room - 1);
    if (n >= 0) path[n] = 0;
    return n >= 0;
}

static int due_fd(int fd, shim_fault *out)
{
    char path[4096];

    return op_armed == OP_READ && path_of(fd, path, sizeof path) && due(OP_READ, path, out);
}

/* OP_CHANGE is about renames and deletions alike; deleting what is not there changes
 * nothing. */
static int due_change(enum shim_op op, const char *path, shim_fault *out)
{
    if (op_armed == OP_CHANGE && op == OP_UNLINK && access(path, F_OK)) return 0;
    return op_armed == OP_CHANGE ? due(OP_CHANGE, path, out)
                                 : op_armed == (int)op && due(op, path, out);
}

static void hang(long ms)
{
    const struct timespec moment = {0, 2000000};
    const unsigned began = round_no;
    struct timespec now, end;

    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += ms / 1000;
    end.tv_nsec += ms % 1000 * 1000000;
    hanging++;
    do {
        nanosleep(&moment, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (round_no == began &&
             (double)(end.tv_sec - now.tv_sec) + 1e-9 * (double)(end.tv_nsec - now.tv_nsec) > 0);
    hanging--;
}

static ssize_t spoil(const shim_fault *f, char *to, ssize_t got)
{
    if (f->kind == KIND_FLIP && got > f->value) to[f->value] ^= 0x40;
    if (f->kind != KIND_SHORT || got <= f->value) return got;
    memset(to + f->value, 0xa5, (size_t)(got - f->value));
    return f->value;
}

/* 1: the call ends here, with errno set. */
static int ends(const shim_fault *f)
{
    if (f->kind == KIND_HANG) hang(f->value);
    if (f->kind == KIND_KILL) raise((int)f->value);
    if (f->kind != KIND_ERROR) return 0;
    errno = (int)f->value;
    return 1;
}

ssize_t pread(int fd, void *to, size_t n, off_t offset)
{
    shim_fault f;

    if (!due_fd(fd, &f)) return real_pread(fd, to, n, offset);
    return ends(&f) ? -1 : spoil(&f, to, real_pread(fd, to, n, offset));
}

ssize_t pread64(int fd, void *to, size_t n, off64_t offset)
{
    shim_fault f;

    if (!due_fd(fd, &f)) return real_pread64(fd, to, n, offset);
    return ends(&f) ? -1 : spoil(&f, to, real_pread64(fd, to, n, offset));
}

/* A read that must not wait finds nothing where the next one is to fail; else it counts
 * like any other. 1: the call ends here, with errno set. */
static int ends_now(int fd, int flags)
{
    char path[4096];
    shim_fault f;

    if (op_armed != OP_READ || !path_of(fd, path, sizeof path)) return 0;
    if (flags & RWF_NOWAIT && is_due(path)) {
        errno = EAGAIN;
        return 1;
    }
    return due(OP_READ, path, &f) && ends(&f);
}

ssize_t preadv2(int fd, const struct iovec *part, int n, off_t offset, int flags)
{
    return ends_now(fd, flags) ? -1 : real_preadv2(fd, part, n, offset, flags);
}

ssize_t preadv64v2(int fd, const struct iovec *part, int n, off64_t offset, int flags)
{
    return ends_now(fd, flags) ? -1 : real_preadv64v2(fd, part, n, offset, flags);
}

#define MODE(flags, mode)                             \
    do {                                              \
        va_list ap;                                   \
        va_start(ap, flags);                          \
        mode = flags & O_CREAT ? va_arg(ap, int) : 0; \
        va_end(ap);                                   \
    } while (0)

int open(const char *path, int flags, ...)
{
    shim_fault f;
    int mode;

    MODE(flags, mode);
    if (op_armed == OP_OPEN && due(OP_OPEN, path, &f) && ends(&f)) return -1;
    return real_open(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    shim_fault f;
    int mode;

    MODE(flags, mode);
    if (op_armed == OP_OPEN && due(OP_OPEN, path, &f) && ends(&f)) return -1;
    return real_open64(path, flags, mode);
}

/* A rename is known by the name that it gives. */
int rename(const char *from, const char *to)
{
    shim_fault f;

    if (due_change(OP_RENAME, to, &f) && ends(&f)) return -1;
    return real_rename(from, to);
}

int unlink(const char *path)
{
    shim_fault f;

    if (due_change(OP_UNLINK, path, &f) && ends(&f)) return -1;
    return real_unlink(path);
}

#define FREE(f, rc, v)                                                         \
    do {                                                                       \
        if ((rc) == 0 && (f).kind == KIND_FREE)                                \
            (v)->f_bavail = (fsblkcnt_t)(f).value / (fsblkcnt_t)(v)->f_frsize; \
    } while (0)

int statvfs(const char *path, struct statvfs *v)
{
    shim_fault f;
    int rc;

    if (!due(OP_STATVFS, path, &f)) return real_statvfs(path, v);
    if (ends(&f)) return -1;
    rc = real_statvfs(path, v);
    FREE(f, rc, v);
    return rc;
}

int statvfs64(const char *path, struct statvfs64 *v)
{
    shim_fault f;
    int rc;

    if (!due(OP_STATVFS, path, &f)) return real_statvfs64(path, v);
    if (ends(&f)) return -1;
    rc = real_statvfs64(path, v);
    FREE(f, rc, v);
    return rc;
}

/* ---- memory ---------------------------------------------------------------------- */

static _Atomic uintptr_t low, high; /* where the library's code lies */
static _Atomic long fail_in;        /* 0: off */
static _Atomic int fail_stays;
static _Atomic long allocations; /* of the library, since shim_arm_memory */

static int library_at(struct dl_phdr_info *info, size_t size, void *name)
{
    const size_t n = strlen(info->dlpi_name), want = strlen(name);
    int i;

    (void)size;
    if (n < want || strcmp(info->dlpi_name + n - want, name) != 0) return 0;
    for (i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];

        if (p->p_type != PT_LOAD || !(p->p_flags & PF_X)) continue;
        low = info->dlpi_addr + p->p_vaddr;
        high = low + p->p_memsz;
    }
    return 1;
}

/* Allocations that the library whose path ends in `name` asks for itself: the n-th
 * from now on fails, and all after it with `stay`. n 0 counts only. Returns 0 when
 * there is no such library. */
int shim_arm_memory(const char *library, long n, int stay)
{
    char name[256];

    fail_in = 0;
    snprintf(name, sizeof name, "%s", library);
    if (!dl_iterate_phdr(library_at, name)) return 0;
    allocations = 0;
    fail_stays = stay;
    fail_in = n;
    return 1;
}

long shim_allocations(void)
{
    return allocations;
}

void shim_off(void)
{
    pthread_mutex_lock(&lock);
    op_armed = OP_NONE;
    round_no++;
    pthread_mutex_unlock(&lock);
    fail_in = 0;
}

static int must_fail(const void *caller)
{
    const uintptr_t at = (uintptr_t)caller;
    long n;

    if (at < low || at >= high) return 0;
    n = ++allocations;
    return fail_in && (fail_stays ? n >= fail_in : n == fail_in);
}

void *mmap64(void *at, size_t n, int protection, int flags, int fd, off64_t offset)
{
    if (must_fail(__builtin_return_address(0))) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return real_mmap64(at, n, protection, flags, fd, offset);
}

#if defined(__GLIBC__)
/* Looking these up would allocate. */
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

void *malloc(size_t n)
{
    if (!must_fail(__builtin_return_address(0))) return __libc_malloc(n);
    errno = ENOMEM;
    return NULL;
}

void *calloc(size_t n, size_t size)
{
    if (!must_fail(__builtin_return_address(0))) return __libc_calloc(n, size);
    errno = ENOMEM;
    return NULL;
}

void *realloc(void *p, size_t n)
{
    if (!must_fail(__builtin_return_address(0))) return __libc_realloc(p, n);
    errno = ENOMEM;
    return NULL;
}
#endif
