#include "launch/output_folder.h"

#include "engine/checked.h"
#include "shard/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct output_lock {
    char *path;
    int file;
};

enum { HOLDER = 200 }; /* bytes of the text that says who holds a lock */

bool output_folder_prepare(const char *folder, error *e) {
    if (!folder_make(folder))
        return error_set(e, EXIT_USAGE, "[output] folder = %s: cannot make the folder: %s", folder, strerror(errno));
    if (access(folder, W_OK | X_OK) != 0)
        return error_set(e, EXIT_USAGE, "[output] folder = %s: cannot write there: %s", folder, strerror(errno));
    return true;
}

/* The bytes of the file that a holder locks: the first to hold it, the second when the text is its own. In between the
 * text may be that of a run which was killed. */
enum { HELD, TEXT_IS_MINE };

static struct flock lock_of(int byte) {
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
}

static bool try_lock(int file, int byte) {
    struct flock lock = lock_of(byte);
    return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

static bool is_locked(int file, int byte) {
    struct flock lock = lock_of(byte);
    return fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* Whether the file is still the one of that name: its holder may have removed it before we got the lock. */
static bool still_named(int file, const char *path) {
    struct stat opened, named;
    return fstat(file, &opened) == 0 && stat(path, &named) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev;
}

static void describe_self(char text[HOLDER]) {
    char host[64] = "unknown host", started[32] = "";
    const time_t now = time(NULL);
    struct tm parts;
    if (gethostname(host, sizeof host - 1) != 0)
        snprintf(host, sizeof host, "unknown host");
    if (gmtime_r(&now, &parts) != NULL)
        strftime(started, sizeof started, "%Y-%m-%d %H:%M:%S", &parts);
    snprintf(text, HOLDER, "process %ld on host %s, started %s UTC", (long)getpid(), host, started);
}

/* A holder says who it is right after taking the file; it gets a second for that. False: it has not. */
static bool read_holder(int file, char text[HOLDER]) {
    const struct timespec pause = {.tv_nsec = 10000000};
    for (int tries = 0; tries < 100; tries++) {
        const ssize_t length = is_locked(file, TEXT_IS_MINE) ? pread(file, text, HOLDER - 1, 0) : 0;
        text[length > 0 ? length : 0] = '\0';
        if (length > 0)
            return true;
        nanosleep(&pause, NULL);
    }
    return false;
}

static bool refuse(const char *folder, const char *path, int file, int reason, error *e) {
    char holder[HOLDER];
    if (reason != EAGAIN && reason != EACCES)
        return error_set(e, EXIT_USAGE, "%s: cannot lock: %s; is this a file system with locks?", path,
                         strerror(reason));
    return error_set(e, EXIT_USAGE, "[output] folder = %s: another run writes there: %s; end it, or use another folder",
                     folder, read_holder(file, holder) ? holder : "its lock does not say which");
}

bool output_lock_take(const char *folder, output_lock **taken, error *e) {
    if (!output_folder_prepare(folder, e))
        return false;
    char *path = memory_format("%s/lock", folder), text[HOLDER];
    describe_self(text);
    for (;;) {
        const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        bool good = file >= 0 || error_set(e, EXIT_USAGE, "%s: cannot open: %s", path, strerror(errno));
        good = good && (try_lock(file, HELD) || refuse(folder, path, file, errno, e));
        if (good && still_named(file, path)) {
            const bool told =
                ftruncate(file, 0) == 0 && pwrite(file, text, strlen(text), 0) > 0 && try_lock(file, TEXT_IS_MINE);
            *taken = memory_allocate(1, sizeof **taken);
            **taken = (output_lock){path, file};
            return told || error_set(e, EXIT_USAGE, "%s: cannot write: %s", path, strerror(errno));
        }
        if (file >= 0)
            close(file);
        if (!good) {
            free(path);
            return false;
        }
    }
}

void output_lock_release(output_lock *l) {
    if (l == NULL)
        return;
    unlink(l->path);
    close(l->file);
    free(l->path);
    free(l);
}
