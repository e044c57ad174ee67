#include "shard/file.h"

#include "engine/checked.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What the system calls say can differ from rank to rank (a full disk, a lost mount). */
static bool failed(const char *what, const char *path, error *e) {
    return error_set_own(e, EXIT_MODEL, "%s: cannot %s: %s", path, what, strerror(errno));
}

bool file_read_at(int descriptor, const char *path, void *to, size_t bytes, int64_t offset, error *e) {
    char *next = to;
    while (bytes > 0) {
        ssize_t moved = pread(descriptor, next, bytes, offset);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved < 0)
            return failed("read", path, e);
        if (moved == 0)
            return error_set_own(e, EXIT_MODEL, "%s: ends at byte %lld, %zu bytes early; was it changed?", path,
                                 (long long)offset, bytes);
        next += moved;
        offset += moved;
        bytes -= (size_t)moved;
    }
    return true;
}

bool file_write_at(int descriptor, const char *path, const void *from, size_t bytes, int64_t offset, error *e) {
    const char *next = from;
    while (bytes > 0) {
        ssize_t moved = pwrite(descriptor, next, bytes, offset);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved < 0)
            return failed("write", path, e);
        next += moved;
        offset += moved;
        bytes -= (size_t)moved;
    }
    return true;
}

json_t *file_load_json(const char *path, error *e) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        error_set(e, EXIT_MODEL, "%s: cannot open: %s", path, strerror(errno));
        return NULL;
    }
    struct stat status;
    if (fstat(descriptor, &status) != 0 || S_ISDIR(status.st_mode)) {
        error_set(e, EXIT_MODEL, "%s: expected a file", path);
        close(descriptor);
        return NULL;
    }
    json_error_t where;
    json_t *top = json_loadfd(descriptor, JSON_REJECT_DUPLICATES, &where);
    close(descriptor);
    if (top == NULL)
        error_set(e, EXIT_MODEL, "%s:%d: not valid JSON: %s", path, where.line, where.text);
    else if (!json_is_object(top)) {
        error_set(e, EXIT_MODEL, "%s: expected a JSON object", path);
        json_decref(top);
        top = NULL;
    }
    return top;
}

bool file_create(const char *path, const void *contents, size_t bytes, error *e) {
    int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0)
        return failed("create", path, e);
    bool fine = file_write_at(descriptor, path, contents, bytes, 0, e);
    if (fine && fsync(descriptor) != 0)
        fine = failed("sync", path, e);
    if (close(descriptor) != 0 && fine)
        fine = failed("close", path, e);
    return fine;
}

bool file_load(const char *path, char **contents, size_t *bytes, error *e) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (descriptor < 0 || fstat(descriptor, &status) != 0) {
        failed("open", path, e);
        if (descriptor >= 0)
            close(descriptor);
        return false;
    }
    *bytes = (size_t)status.st_size;
    *contents = memory_allocate(*bytes + 1, 1);
    bool fine = file_read_at(descriptor, path, *contents, *bytes, 0, e);
    close(descriptor);
    if (!fine)
        free(*contents);
    return fine;
}

bool file_copy(const char *from, const char *to, error *e) {
    char *contents;
    size_t bytes;
    if (!file_load(from, &contents, &bytes, e))
        return false;
    bool fine = file_create(to, contents, bytes, e);
    free(contents);
    return fine;
}

bool file_exists(const char *path) {
    return access(path, F_OK) == 0;
}

/* False with errno as it was, unless a file is in the way. */
static bool is_folder(const char *path) {
    struct stat status;
    int reason = errno;
    bool found = stat(path, &status) == 0;
    errno = found ? ENOTDIR : reason;
    return found && S_ISDIR(status.st_mode);
}

/* A file system that has no such thing for folders says EINVAL; names are then as durable as it makes them. */
static bool sync_names(int folder) {
    return fsync(folder) == 0 || errno == EINVAL;
}

/* A parent that may be written to but not read cannot be opened for it. */
static bool sync_parent(const char *path) {
    char *copy = memory_copy_string(path);
    const int parent = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool good = parent < 0 ? errno == EACCES : sync_names(parent);
    const int reason = errno;
    if (parent >= 0)
        close(parent);
    free(copy);
    errno = reason;
    return good;
}

bool folder_make_one(const char *path) {
    return mkdir(path, 0777) == 0 ? sync_parent(path) : is_folder(path);
}

bool folder_make(const char *path) {
    char *text = memory_copy_string(path);
    bool good = true;
    for (char *slash = text; good && slash != NULL;) {
        slash = strchr(slash + 1, '/');
        if (slash != NULL)
            *slash = '\0';
        good = folder_make_one(text);
        if (slash != NULL)
            *slash = '/';
    }
    free(text);
    return good;
}

bool folder_sync(const char *path, error *e) {
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0)
        return failed("open", path, e);
    bool fine = sync_names(descriptor) || failed("sync", path, e);
    close(descriptor);
    return fine;
}

char *folder_find_folder(const char *path) {
    DIR *folder = opendir(path);
    char *found = NULL;
    for (struct dirent *entry; folder != NULL && found == NULL && (entry = readdir(folder)) != NULL;) {
        struct stat status;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            fstatat(dirfd(folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode))
            found = memory_copy_string(entry->d_name);
    }
    if (folder != NULL)
        closedir(folder);
    return found;
}

bool folder_remove(const char *path, error *e) {
    struct stat status;
    if (lstat(path, &status) == 0 && !S_ISDIR(status.st_mode))
        return unlink(path) == 0 || failed("remove", path, e);
    DIR *folder = opendir(path);
    if (folder == NULL)
        return errno == ENOENT || failed("open", path, e);
    bool fine = true;
    for (struct dirent *entry; fine && (entry = readdir(folder)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (unlinkat(dirfd(folder), entry->d_name, 0) != 0) {
            char *name = memory_format("%s/%s", path, entry->d_name);
            fine = failed("remove", name, e);
            free(name);
        }
    }
    closedir(folder);
    return fine && (rmdir(path) == 0 || failed("remove", path, e));
}
