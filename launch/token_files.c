#include "launch/token_files.h"

#include "engine/checked.h"
#include "launch/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HEADER_INTS = 256,
    HEADER_BYTES = HEADER_INTS * 4,
    MAGIC_UINT16 = 20240520,
    MAGIC_UINT32 = 20240801,
    DROP_BYTES = 1 << 16, /* the system maps up to this much around a page that is touched */
    SCAN_BYTES = 1 << 22  /* resident at a time while all tokens are checked */
};

typedef struct header {
    int64_t bytes; /* of it that the file has */
    int32_t ints[HEADER_INTS];
} header;

/* ---- what kind of file it is ---- */

static int width_of_magic(int32_t magic) {
    return magic == MAGIC_UINT16 ? 2 : magic == MAGIC_UINT32 ? 4 : 1;
}

/* A header under another magic: no text has a thousand zero bytes in this place. */
static bool looks_like_header(const header *h) {
    for (int i = 3; i < HEADER_INTS; i++)
        if (h->ints[i] != 0)
            return false;
    return h->bytes == HEADER_BYTES;
}

static bool read_header_file(const char *key, token_file *f, const header *h, error *e) {
    if (h->bytes < HEADER_BYTES)
        return error_set(e, EXIT_DATA,
                         "%s: %s: starts as a token file (%d), but has %lld bytes where the header alone has %d", key,
                         f->path, h->ints[0], (long long)f->bytes, HEADER_BYTES);
    if (h->ints[1] != 1 && h->ints[1] != 7)
        return error_set(e, EXIT_DATA, "%s: %s: token file of version %d; versions 1 and 7 can be read", key, f->path,
                         h->ints[1]);
    f->start = HEADER_BYTES;
    f->width = width_of_magic(h->ints[0]);
    f->count = h->ints[2];
    int64_t expected = HEADER_BYTES + f->count * f->width;
    if (f->count < 0 || f->bytes != expected)
        return error_set(e, EXIT_DATA,
                         "%s: %s: has %lld bytes, but its header counts %lld tokens of %d bytes, which makes %lld; "
                         "the file is truncated or damaged",
                         key, f->path, (long long)f->bytes, (long long)f->count, f->width, (long long)expected);
    if (f->count == 0)
        return error_set(e, EXIT_DATA, "%s: %s: holds no tokens", key, f->path);
    return true;
}

static bool read_headerless_file(const char *key, token_file *f, const header *h, int width, error *e) {
    const char *name = width == 2 ? "tokens16" : "tokens32";
    if (h->bytes == HEADER_BYTES && width_of_magic(h->ints[0]) != 1 && (h->ints[1] == 1 || h->ints[1] == 7))
        return error_set(e, EXIT_DATA,
                         "%s: %s: has a header (%d), but [data] format = %s is for files without one; use auto", key,
                         f->path, h->ints[0], name);
    if (f->bytes % width != 0)
        return error_set(e, EXIT_DATA, "%s: %s: has %lld bytes, no multiple of the %d bytes of a token in %s", key,
                         f->path, (long long)f->bytes, width, name);
    f->width = width;
    f->count = f->bytes / width;
    return true;
}

static bool recognise(const char *key, token_format format, token_file *f, const header *h, error *e) {
    if (format == TOKEN_FORMAT_TOKENS16 || format == TOKEN_FORMAT_TOKENS32)
        return read_headerless_file(key, f, h, format == TOKEN_FORMAT_TOKENS16 ? 2 : 4, e);
    if (format == TOKEN_FORMAT_AUTO && h->bytes >= 4 && width_of_magic(h->ints[0]) != 1)
        return read_header_file(key, f, h, e);
    if (format == TOKEN_FORMAT_AUTO && looks_like_header(h))
        return error_set(e, EXIT_DATA,
                         "%s: %s: neither text nor a token file: its header starts with %d where %d (16 bits) or "
                         "%d (32 bits) is expected; for files without a header set [data] format",
                         key, f->path, h->ints[0], MAGIC_UINT16, MAGIC_UINT32);
    f->width = 1;
    f->count = f->bytes;
    return true;
}

/* ---- opening ---- */

static bool map_open_file(const char *key, token_format format, int descriptor, token_file *f, error *e) {
    struct stat status;
    if (fstat(descriptor, &status) != 0)
        return error_set(e, EXIT_DATA, "%s: %s: cannot read: %s", key, f->path, strerror(errno));
    if (S_ISDIR(status.st_mode))
        return error_set(e, EXIT_DATA, "%s: %s: is a directory; name the files in it, for example as %s/*", key,
                         f->path, f->path);
    if (!S_ISREG(status.st_mode))
        return error_set(e, EXIT_DATA, "%s: %s: is not a regular file", key, f->path);
    if (status.st_size == 0)
        return error_set(e, EXIT_DATA, "%s: %s: is empty", key, f->path);

    header h = {0};
    f->bytes = status.st_size;
    h.bytes = pread(descriptor, h.ints, sizeof h.ints, 0);
    if (h.bytes < 0)
        return error_set(e, EXIT_DATA, "%s: %s: cannot read: %s", key, f->path, strerror(errno));
    if (!recognise(key, format, f, &h, e))
        return false;

    void *map = mmap(NULL, (size_t)f->bytes, PROT_READ, MAP_SHARED, descriptor, 0);
    if (map == MAP_FAILED)
        return error_set(e, EXIT_DATA, "%s: %s: cannot map %lld bytes: %s", key, f->path, (long long)f->bytes,
                         strerror(errno));
    f->map = map;
    madvise(map, (size_t)f->bytes, MADV_RANDOM);
    return true;
}

static bool add_file(token_stream *s, const char *path, token_format format, error *e) {
    check(s->count < INT32_MAX, "too many files");
    s->files = memory_grow(s->files, (size_t)s->count + 1, sizeof *s->files);
    token_file *f = &s->files[s->count++];
    *f = (token_file){.path = memory_copy_string(path), .first = s->tokens};

    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* not to wait for the writer of a pipe */
    if (descriptor < 0)
        return error_set(e, EXIT_DATA, "%s: %s: cannot open: %s", s->key, path, strerror(errno));
    bool ok = map_open_file(s->key, format, descriptor, f, e);
    close(descriptor);
    if (!ok)
        return false;

    if (s->count == 1)
        s->text = f->width == 1;
    if (s->text != (f->width == 1))
        return error_set(e, EXIT_DATA, "%s: %s is %s, but %s is %s; one stream is either text or tokens", s->key,
                         s->files[0].path, s->text ? "text" : "a token file", path, s->text ? "a token file" : "text");
    s->tokens += f->count;
    return true;
}

static int compare_paths(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool add_pattern(token_stream *s, const char *pattern, token_format format, error *e) {
    struct stat status;
    if (stat(pattern, &status) == 0)
        return add_file(s, pattern, format, e);
    if (strpbrk(pattern, "*?[") == NULL)
        return error_set(e, EXIT_DATA,
                         "%s: %s: %s; relative paths start at the directory that the program is started in", s->key,
                         pattern, strerror(errno));
    glob_t found = {0};
    bool ok = true;
    int result = glob(pattern, GLOB_NOSORT, NULL, &found);
    if (result == GLOB_NOMATCH)
        ok = error_set(e, EXIT_DATA, "%s: %s: matches no file", s->key, pattern);
    else if (result != 0)
        ok = error_set(e, EXIT_DATA, "%s: %s: cannot look for files: %s", s->key, pattern, strerror(errno));
    else
        qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, compare_paths);
    for (size_t i = 0; ok && i < found.gl_pathc; i++)
        ok = add_file(s, found.gl_pathv[i], format, e);
    globfree(&found);
    return ok;
}

bool token_stream_open(const char *key, const char *const *patterns, int32_t pattern_count, token_format format,
                       token_stream *s, error *e) {
    *s = (token_stream){.key = key};
    bool ok = pattern_count > 0 || error_set(e, EXIT_DATA, "%s: no files given", key);
    for (int32_t i = 0; ok && i < pattern_count; i++)
        ok = add_pattern(s, patterns[i], format, e);
    if (!ok)
        token_stream_close(s);
    return ok;
}

void token_stream_close(token_stream *s) {
    for (int32_t i = 0; i < s->count; i++) {
        if (s->files[i].map)
            munmap((void *)s->files[i].map, (size_t)s->files[i].bytes);
        free(s->files[i].path);
    }
    free(s->files);
    *s = (token_stream){0};
}

/* ---- reading ---- */

/* Tells the system about the pages around bytes first .. first + count of the file. */
static void advise(const token_file *f, int64_t first, int64_t count, int advice) {
    int64_t from = first / DROP_BYTES * DROP_BYTES;
    int64_t to = minimum(round_up(first + count, DROP_BYTES), f->bytes);
    madvise((void *)(f->map + from), (size_t)(to - from), advice);
}

/* Tokens first .. first + count of a file. */
typedef struct piece {
    const token_file *file;
    int64_t first, count;
    int32_t *tokens; /* where they go */
} piece;

static void read_piece(void *context) {
    const piece *p = context;
    const token_file *f = p->file;
    int64_t at = f->start + p->first * f->width, bytes = p->count * f->width;
    const void *map = f->map + at;
    if (bytes > sysconf(_SC_PAGESIZE)) /* one request to the disk rather than one per page */
        advise(f, at, bytes, MADV_WILLNEED);
    for (int64_t i = 0; f->width == 1 && i < p->count; i++)
        p->tokens[i] = ((const uint8_t *)map)[i];
    for (int64_t i = 0; f->width == 2 && i < p->count; i++)
        p->tokens[i] = ((const uint16_t *)map)[i];
    if (f->width == 4)
        memcpy(p->tokens, map, (size_t)bytes);
    advise(f, at, bytes, MADV_DONTNEED);
}

static bool unreadable(const token_stream *s, const token_file *f, error *e) {
    return error_set_own(e, EXIT_DATA,
                         "%s: %s: cannot be read any more: it was cut off while in use, or its disk fails", s->key,
                         f->path);
}

/* The file that holds a token of the stream. */
static int32_t find_file(const token_stream *s, int64_t position) {
    int32_t low = 0, high = s->count - 1;
    while (low < high) {
        int32_t middle = low + (high - low + 1) / 2;
        if (s->files[middle].first <= position)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

bool token_stream_read(const token_stream *s, int64_t first, int64_t count, int32_t *tokens, error *e) {
    check(first >= 0 && count >= 0 && first <= s->tokens - count, "tokens %lld + %lld of %lld", (long long)first,
          (long long)count, (long long)s->tokens);
    for (int32_t i = find_file(s, first); count > 0; i++) {
        const token_file *f = &s->files[i];
        piece p = {.file = f, .first = first - f->first, .tokens = tokens};
        p.count = minimum(count, f->count - p.first);
        if (!mapped_read(read_piece, &p))
            return unreadable(s, f, e);
        first += p.count;
        count -= p.count;
        tokens += p.count;
    }
    return true;
}

/* ---- checking ---- */

static uint32_t token_at(const void *tokens, int width, int64_t i) {
    return width == 1   ? ((const uint8_t *)tokens)[i]
           : width == 2 ? ((const uint16_t *)tokens)[i]
                        : ((const uint32_t *)tokens)[i];
}

/* One loop per type, so that the compiler vectorises it. */
#define LARGEST(type)                                                                                                  \
    static uint32_t largest_##type(const type *tokens, int64_t count) {                                                \
        type most = 0;                                                                                                 \
        for (int64_t i = 0; i < count; i++)                                                                            \
            most = tokens[i] > most ? tokens[i] : most;                                                                \
        return most;                                                                                                   \
    }
LARGEST(uint8_t)
LARGEST(uint16_t)
LARGEST(uint32_t)

static uint32_t largest(const void *tokens, int width, int64_t count) {
    return width == 1   ? largest_uint8_t(tokens, count)
           : width == 2 ? largest_uint16_t(tokens, count)
                        : largest_uint32_t(tokens, count);
}

static bool report_token(const token_stream *s, const token_file *f, int64_t position, uint32_t token,
                         int64_t vocabulary, error *e) {
    return error_set(e, EXIT_DATA, "%s: %s: %s %lld is %u, outside the vocabulary of %lld", s->key, f->path,
                     s->text ? "byte" : "token", (long long)position, token, (long long)vocabulary);
}

/* A stretch of a file that is looked through. */
typedef struct scan {
    const void *tokens;
    int width;
    int64_t count, vocabulary;
    int64_t found;  /* place of the first token outside the vocabulary; count: none */
    uint32_t token; /* that token */
} scan;

static void scan_tokens(void *context) {
    scan *s = context;
    s->found = s->count;
    if (largest(s->tokens, s->width, s->count) < s->vocabulary)
        return;
    for (s->found = 0; s->found < s->count; s->found++) /* the end may come all the same: others may be writing */
        if ((s->token = token_at(s->tokens, s->width, s->found)) >= s->vocabulary)
            return;
}

static bool check_file(const token_stream *s, const token_file *f, int64_t vocabulary, error *e) {
    for (int64_t first = 0; first < f->count; first += SCAN_BYTES / f->width) {
        const int64_t count = minimum(SCAN_BYTES / f->width, f->count - first);
        const int64_t at = f->start + first * f->width;
        scan part = {.tokens = f->map + at, .width = f->width, .count = count, .vocabulary = vocabulary};
        advise(f, at, count * f->width, MADV_WILLNEED);
        if (!mapped_read(scan_tokens, &part))
            return unreadable(s, f, e);
        if (part.found < count)
            return report_token(s, f, first + part.found, part.token, vocabulary, e);
        advise(f, at, count * f->width, MADV_DONTNEED);
    }
    return true;
}

bool token_stream_check(const token_stream *s, int64_t vocabulary, error *e) {
    for (int32_t i = 0; i < s->count; i++) {
        bool any_fits = vocabulary >= INT64_C(1) << (8 * s->files[i].width);
        if (!any_fits && !check_file(s, &s->files[i], vocabulary, e))
            return false;
    }
    return true;
}
