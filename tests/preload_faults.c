/* Put below a program with LD_PRELOAD, lets one file operation go wrong: the FAULT_NUMBER-th (from 1) of this process
 * whose path contains FAULT_PATH, on the rank FAULT_RANK. Counted are open for writing, write, pwrite, fsync, close,
 * mkdir, rename and unlink; what happened is written to FAULT_REPORT. The operation fails with EIO or, with FAULT_KILL
 * = one or all, this process or all of its launcher's are killed instead of it or, with FAULT_SLEEP, it succeeds after
 * as many seconds. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))(uintptr_t)dlsym(RTLD_NEXT, #name))

static int operations; /* seen so far; files are worked on by one thread at a time */

static bool this_rank(void) {
    const char *wanted = getenv("FAULT_RANK"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    return wanted == NULL || strcmp(rank != NULL ? rank : "0", wanted) == 0;
}

static void report(const char *name, const char *path) {
    const int file = REAL(open)(getenv("FAULT_REPORT"), O_WRONLY | O_CREAT | O_APPEND, 0666);
    dprintf(file, "%s %s\n", name, path);
    REAL(close)(file);
}

static void kill_as_told(void) {
    const char *victims = getenv("FAULT_KILL");
    char path[64];
    int child;
    if (victims == NULL)
        return;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)getppid(), (int)getppid());
    FILE *children = strcmp(victims, "all") == 0 ? fopen(path, "r") : NULL;
    while (children != NULL && fscanf(children, "%d", &child) == 1)
        if (child != getpid())
            kill(child, SIGKILL);
    kill(getpid(), SIGKILL);
}

static bool fails(const char *name, const char *path) {
    const char *part = getenv("FAULT_PATH"), *number = getenv("FAULT_NUMBER");
    if (part == NULL || number == NULL || !this_rank() || strstr(path, part) == NULL)
        return false;
    if (++operations != atoi(number))
        return false;
    report(name, path);
    kill_as_told();
    if (getenv("FAULT_SLEEP") != NULL) {
        sleep((unsigned)atoi(getenv("FAULT_SLEEP")));
        return false;
    }
    errno = EIO;
    return true;
}

static bool descriptor_fails(const char *name, int descriptor) {
    char link[64], path[PATH_MAX];
    if (getenv("FAULT_PATH") == NULL)
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return false;
    path[length] = '\0';
    return fails(name, path);
}

int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
    va_end(more);
    if ((flags & (O_WRONLY | O_RDWR)) != 0 && fails("open", path))
        return -1;
    return REAL(open)(path, flags, mode);
}

ssize_t write(int descriptor, const void *bytes, size_t count) {
    return descriptor_fails("write", descriptor) ? -1 : REAL(write)(descriptor, bytes, count);
}

ssize_t pwrite(int descriptor, const void *bytes, size_t count, off_t offset) {
    return descriptor_fails("pwrite", descriptor) ? -1 : REAL(pwrite)(descriptor, bytes, count, offset);
}

int fsync(int descriptor) {
    return descriptor_fails("fsync", descriptor) ? -1 : REAL(fsync)(descriptor);
}

/* The descriptor is gone even so, as on Linux. */
int close(int descriptor) {
    const bool failed = descriptor_fails("close", descriptor);
    const int result = REAL(close)(descriptor);
    if (failed)
        errno = EIO;
    return failed ? -1 : result;
}

int mkdir(const char *path, mode_t mode) {
    return fails("mkdir", path) ? -1 : REAL(mkdir)(path, mode);
}

int rename(const char *from, const char *to) {
    return fails("rename", to) ? -1 : REAL(rename)(from, to);
}

int unlinkat(int folder, const char *name, int flags) {
    return descriptor_fails("unlink", folder) ? -1 : REAL(unlinkat)(folder, name, flags);
}
