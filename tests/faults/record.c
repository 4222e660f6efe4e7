/* Records the file operations of a process below one folder: cc -shared -fPIC -o record.so record.c, then LD_PRELOAD.
 *
 * RECORD_FOLDER is the folder (no symbolic links in its path), RECORD_LOG the file that operations are appended to.
 * tests/faults/replay.py reads the log. A mutex makes the log the order in which operations took effect, whatever the
 * threads of the process; a forked child appends to the same log. Only one process at a time may write to the folder.
 *
 * Files are named by path. The path of a descriptor is read from /proc/self/fd at the time of the call, so renamed files,
 * duplicated descriptors and paths relative to a directory descriptor need no bookkeeping. Operations that cannot be recorded
 * (shared writable mappings, stdio streams opened for writing, O_TMPFILE, cloned ranges, exchanged names) abort the process.
 * Raw system calls are not intercepted; the reader of the log detects them by comparing its end with the real folder.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const char *folder, *log_path;
static size_t folder_length;
static long operations_left = -1; /* until the process kills itself; negative: never */

static void lock(void) { pthread_mutex_lock(&mutex); }
static void unlock(void) { pthread_mutex_unlock(&mutex); }

__attribute__((constructor)) static void begin(void) {
    folder = getenv("RECORD_FOLDER");
    log_path = getenv("RECORD_LOG");
    folder_length = folder ? strlen(folder) : 0;
    pthread_atfork(lock, unlock, unlock);
}

/* Record below another folder from now on: for a process that is forked before its folder is known. */
void record_below(const char *new_folder, const char *new_log) {
    folder = strdup(new_folder), log_path = strdup(new_log), folder_length = strlen(folder);
}

static void refuse(const char *what, const char *path) {
    dprintf(2, "record: %s of %s cannot be recorded\n", what, path);
    abort();
}

/* Paths. Each function returns whether the path is the folder or below it; `path` then is relative to the folder. */

static int below(const char *absolute, char *path) {
    if (!folder || !log_path || strncmp(absolute, folder, folder_length)) return 0;
    if (absolute[folder_length] && absolute[folder_length] != '/') return 0;
    strcpy(path, absolute + folder_length + (absolute[folder_length] == '/'));
    return 1;
}

static int absolute_of(int fd, char *absolute) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, absolute, (size_t)PATH_MAX - 1);
    absolute[length < 0 ? 0 : length] = 0;
    return length > 0 && absolute[0] == '/';
}

static int path_of_descriptor(int fd, char *path) {
    char absolute[PATH_MAX];
    struct stat status;
    int before = errno;
    int found = folder && absolute_of(fd, absolute) && below(absolute, path) && !fstat(fd, &status) && status.st_nlink;
    errno = before; /* an unlinked file has no path, and is lost in a crash */
    return found;
}

/* The directory part is resolved, the name is not: rename, unlink and the like act on a symbolic link itself. */
static int path_of_name(int at, const char *name, char *path) {
    char joined[2 * PATH_MAX], directory[PATH_MAX], absolute[2 * PATH_MAX];
    int before = errno, found = 0;
    if (!folder || !name || !*name || strlen(name) >= PATH_MAX) return 0;
    if (name[0] == '/') strcpy(joined, name);
    else {
        char base[PATH_MAX];
        if (at == AT_FDCWD ? !getcwd(base, sizeof base) : !absolute_of(at, base)) goto end;
        snprintf(joined, sizeof joined, "%s/%s", base, name);
    }
    for (size_t length = strlen(joined); length > 1 && joined[length - 1] == '/';) joined[--length] = 0;
    char *slash = strrchr(joined, '/');
    const char *last = slash + 1;
    if (!strcmp(last, ".") || !strcmp(last, "..")) {
        if (!realpath(joined, absolute)) goto end;
    } else {
        *slash = 0;
        if (!realpath(*joined ? joined : "/", directory)) goto end;
        snprintf(absolute, sizeof absolute, "%s/%s", strcmp(directory, "/") ? directory : "", last);
    }
    found = below(absolute, path);
end:
    errno = before;
    return found;
}

/* The log: records of a header, two paths and data, each appended by one write. */

struct header {
    uint8_t kind;
    uint32_t path, target;
    uint64_t number, data;
} __attribute__((packed));

static void record(char kind, const char *path, const char *target, uint64_t number, const struct iovec *data, int parts) {
    int before = errno;
    size_t total = 0;
    for (int part = 0; part < parts; part++) total += data[part].iov_len;
    struct header header = {kind, strlen(path), strlen(target), number, total};
    size_t size = sizeof header + header.path + header.target + total;
    char *buffer = malloc(size), *end = buffer;
    if (!buffer) refuse("a write", path);
    end = mempcpy(end, &header, sizeof header);
    end = mempcpy(mempcpy(end, path, header.path), target, header.target);
    for (int part = 0; part < parts; part++) end = mempcpy(end, data[part].iov_base, data[part].iov_len);
    int fd = syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || syscall(SYS_write, fd, buffer, size) != (long)size) refuse("the operation", path);
    syscall(SYS_close, fd);
    free(buffer);
    if (kind != 'M' && operations_left >= 0 && operations_left-- == 0) raise(SIGKILL);
    errno = before;
}

static void record_name(char kind, const char *path) { record(kind, path, "", 0, NULL, 0); }

/* For the recorded program: record what it has reported as saved, and kill it after some further operations. */

void record_mark(const char *text) {
    lock();
    record_name('M', text);
    unlock();
}

void record_kill_after(long operations) {
    lock();
    operations_left = operations;
    unlock();
}

/* Opening */

static int opened(int at, const char *name, int flags, mode_t mode) {
    char path[2 * PATH_MAX];
    int writes = flags & (O_CREAT | O_TRUNC), temporary = (flags & O_TMPFILE) == O_TMPFILE;
    if (!(writes || temporary) || !path_of_name(at, name, path)) return syscall(SYS_openat, at, name, flags, mode);
    if (temporary) refuse("O_TMPFILE", path);
    lock();
    int fd = syscall(SYS_openat, at, name, flags, mode);
    if (fd >= 0 && path_of_descriptor(fd, path)) record('O', path, "", (flags & O_TRUNC) != 0, NULL, 0);
    unlock();
    return fd;
}

#define MODE_OF(flags, mode) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *name, int flags, ...) { MODE_OF(flags, mode) return opened(AT_FDCWD, name, flags, mode); }
int openat(int at, const char *name, int flags, ...) { MODE_OF(flags, mode) return opened(at, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE_OF(flags, mode) return opened(AT_FDCWD, name, flags, mode); }
int openat64(int at, const char *name, int flags, ...) { MODE_OF(flags, mode) return opened(at, name, flags, mode); }
int __open_2(const char *name, int flags) { return opened(AT_FDCWD, name, flags, 0); }
int __open64_2(const char *name, int flags) { return opened(AT_FDCWD, name, flags, 0); }
int __openat_2(int at, const char *name, int flags) { return opened(at, name, flags, 0); }
int __openat64_2(int at, const char *name, int flags) { return opened(at, name, flags, 0); }
int creat(const char *name, mode_t mode) { return opened(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *name, mode_t mode) { return opened(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }

/* libc writes streams without calling the functions below. */
static FILE *stream(const char *function, const char *name, const char *mode) {
    char path[2 * PATH_MAX];
    FILE *(*real)(const char *, const char *) = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, function);
    if (strpbrk(mode, "wa+") && path_of_name(AT_FDCWD, name, path)) refuse(function, path);
    return real(name, mode);
}
FILE *fopen(const char *name, const char *mode) { return stream("fopen", name, mode); }
FILE *fopen64(const char *name, const char *mode) { return stream("fopen64", name, mode); }

/* Writing. `call` is made, and the bytes it wrote are recorded with their offset. */

static void record_write(const char *path, off_t offset, const struct iovec *data, int parts, size_t written) {
    struct iovec *cut = calloc(parts ? parts : 1, sizeof *cut);
    int used = 0;
    for (size_t left = written; used < parts && left; used++) {
        cut[used] = data[used];
        if (cut[used].iov_len > left) cut[used].iov_len = left;
        left -= cut[used].iov_len;
    }
    record('W', path, "", offset, cut, used);
    free(cut);
}

/* The position after a write is the end of the written bytes, also with O_APPEND. */
#define RECORDED(fd, call, data, parts, offset) \
    char path[2 * PATH_MAX]; \
    if (!path_of_descriptor(fd, path)) return call; \
    lock(); \
    ssize_t written = call; \
    if (written > 0 && path_of_descriptor(fd, path)) record_write(path, offset, data, parts, written); \
    unlock(); \
    return written;

#define POSITION(fd) (lseek(fd, 0, SEEK_CUR) - written)
/* Linux appends where O_APPEND is set, whatever offset is given. */
#define PLACE(fd, offset) (fcntl(fd, F_GETFL) & O_APPEND ? lseek(fd, 0, SEEK_END) - written : (offset))

ssize_t write(int fd, const void *from, size_t size) {
    struct iovec data = {(void *)from, size};
    RECORDED(fd, syscall(SYS_write, fd, from, size), &data, 1, POSITION(fd))
}
ssize_t writev(int fd, const struct iovec *data, int parts) {
    RECORDED(fd, syscall(SYS_writev, fd, data, parts), data, parts, POSITION(fd))
}
ssize_t pwrite(int fd, const void *from, size_t size, off_t offset) {
    struct iovec data = {(void *)from, size};
    RECORDED(fd, syscall(SYS_pwrite64, fd, from, size, offset), &data, 1, PLACE(fd, offset))
}
ssize_t pwrite64(int fd, const void *from, size_t size, off_t offset) { return pwrite(fd, from, size, offset); }
ssize_t pwritev(int fd, const struct iovec *data, int parts, off_t offset) {
    RECORDED(fd, syscall(SYS_pwritev, fd, data, parts, offset, 0), data, parts, PLACE(fd, offset))
}
ssize_t pwritev64(int fd, const struct iovec *data, int parts, off_t offset) { return pwritev(fd, data, parts, offset); }
ssize_t pwritev2(int fd, const struct iovec *data, int parts, off_t offset, int flags) {
    RECORDED(fd, syscall(SYS_pwritev2, fd, data, parts, offset, 0, flags), data, parts,
             offset == -1 ? POSITION(fd) : PLACE(fd, offset))
}
ssize_t pwritev64v2(int fd, const struct iovec *data, int parts, off_t offset, int flags) {
    return pwritev2(fd, data, parts, offset, flags);
}

/* Copies inside the kernel: the written bytes are read back. */
static void record_copy(int fd, const char *path, off_t offset, size_t size) {
    char link[64], *buffer = malloc(size);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int reader = syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC, 0);
    if (!buffer || reader < 0 || pread(reader, buffer, size, offset) != (ssize_t)size) refuse("a copy", path);
    struct iovec data = {buffer, size};
    record('W', path, "", offset, &data, 1);
    syscall(SYS_close, reader);
    free(buffer);
}

#define COPIED(fd, call, offset) \
    char path[2 * PATH_MAX]; \
    if (!path_of_descriptor(fd, path)) return call; \
    lock(); \
    ssize_t written = call; \
    if (written > 0) record_copy(fd, path, offset, written); \
    unlock(); \
    return written;

ssize_t sendfile(int out, int in, off_t *from, size_t size) {
    COPIED(out, syscall(SYS_sendfile, out, in, from, size), POSITION(out))
}
ssize_t sendfile64(int out, int in, off_t *from, size_t size) { return sendfile(out, in, from, size); }
ssize_t copy_file_range(int in, off_t *from, int out, off_t *to, size_t size, unsigned flags) {
    COPIED(out, syscall(SYS_copy_file_range, in, from, out, to, size, flags), to ? *to - written : POSITION(out))
}
ssize_t splice(int in, off_t *from, int out, off_t *to, size_t size, unsigned flags) {
    COPIED(out, syscall(SYS_splice, in, from, out, to, size, flags), to ? *to - written : POSITION(out))
}

/* Sizes */

static int resized(int fd, const char *path, int failed) {
    struct stat status;
    if (!failed && !fstat(fd, &status)) record('T', path, "", status.st_size, NULL, 0);
    return failed;
}

int ftruncate(int fd, off_t size) {
    char path[2 * PATH_MAX];
    if (!path_of_descriptor(fd, path)) return syscall(SYS_ftruncate, fd, size);
    lock();
    int failed = resized(fd, path, syscall(SYS_ftruncate, fd, size));
    unlock();
    return failed;
}
int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }

int truncate(const char *name, off_t size) {
    int fd = syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CLOEXEC, 0);
    int failed = fd < 0 ? -1 : ftruncate(fd, size);
    if (fd >= 0) syscall(SYS_close, fd);
    return failed;
}
int truncate64(const char *name, off_t size) { return truncate(name, size); }

int fallocate(int fd, int mode, off_t offset, off_t size) {
    char path[2 * PATH_MAX];
    if (!path_of_descriptor(fd, path)) return syscall(SYS_fallocate, fd, mode, offset, size);
    if (mode) refuse("fallocate with a mode", path);
    lock();
    int failed = resized(fd, path, syscall(SYS_fallocate, fd, mode, offset, size));
    unlock();
    return failed;
}
int fallocate64(int fd, int mode, off_t offset, off_t size) { return fallocate(fd, mode, offset, size); }
int posix_fallocate(int fd, off_t offset, off_t size) { return fallocate(fd, 0, offset, size) ? errno : 0; }
int posix_fallocate64(int fd, off_t offset, off_t size) { return posix_fallocate(fd, offset, size); }

/* Syncing. sync_file_range guarantees nothing about a crash, so it is not recorded. */

static int synced(int fd, long call) {
    char path[2 * PATH_MAX];
    if (!path_of_descriptor(fd, path)) return syscall(call, fd);
    lock();
    int failed = syscall(call, fd);
    if (!failed && path_of_descriptor(fd, path)) record_name('F', path);
    unlock();
    return failed;
}
int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

/* Names */

#define NAMED(at, name, kind, call) \
    char path[2 * PATH_MAX]; \
    if (!path_of_name(at, name, path)) return call; \
    lock(); \
    int failed = call; \
    if (!failed) record_name(kind, path); \
    unlock(); \
    return failed;

int mkdirat(int at, const char *name, mode_t mode) { NAMED(at, name, 'D', syscall(SYS_mkdirat, at, name, mode)) }
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }
int unlinkat(int at, const char *name, int flags) { NAMED(at, name, 'U', syscall(SYS_unlinkat, at, name, flags)) }
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }
int remove(const char *name) {
    struct stat status;
    if (lstat(name, &status)) return -1;
    return S_ISDIR(status.st_mode) ? rmdir(name) : unlink(name);
}

#define TWICE_NAMED(from_at, from, to_at, to, kind, call) \
    char path[2 * PATH_MAX], target[2 * PATH_MAX]; \
    int source_below = path_of_name(from_at, from, path), target_below = path_of_name(to_at, to, target); \
    if (!source_below && !target_below) return call; \
    if (source_below != target_below) refuse("a move across the folder's border", source_below ? path : target); \
    lock(); \
    int failed = call; \
    if (!failed) record(kind, path, target, 0, NULL, 0); \
    unlock(); \
    return failed;

int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    if (flags & ~RENAME_NOREPLACE) {
        char path[2 * PATH_MAX];
        if (path_of_name(from_at, from, path)) refuse("renameat2 with these flags", path);
    }
    TWICE_NAMED(from_at, from, to_at, to, 'R', syscall(SYS_renameat2, from_at, from, to_at, to, flags))
}
int renameat(int from_at, const char *from, int to_at, const char *to) { return renameat2(from_at, from, to_at, to, 0); }
int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }
int linkat(int from_at, const char *from, int to_at, const char *to, int flags) {
    TWICE_NAMED(from_at, from, to_at, to, 'L', syscall(SYS_linkat, from_at, from, to_at, to, flags))
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }
int symlinkat(const char *content, int at, const char *name) {
    char path[2 * PATH_MAX];
    if (!path_of_name(at, name, path)) return syscall(SYS_symlinkat, content, at, name);
    lock();
    int failed = syscall(SYS_symlinkat, content, at, name);
    if (!failed) record('Y', path, content, 0, NULL, 0);
    unlock();
    return failed;
}
int symlink(const char *content, const char *name) { return symlinkat(content, AT_FDCWD, name); }

/* Mappings */

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset) {
    char path[2 * PATH_MAX];
    int shared = (flags & MAP_TYPE) == MAP_SHARED || (flags & MAP_TYPE) == MAP_SHARED_VALIDATE;
    if (fd >= 0 && shared && (protection & PROT_WRITE) && path_of_descriptor(fd, path)) refuse("a writable mapping", path);
    return (void *)syscall(SYS_mmap, address, size, protection, flags, fd, offset);
}
void *mmap64(void *address, size_t size, int protection, int flags, int fd, off_t offset) {
    return mmap(address, size, protection, flags, fd, offset);
}
