/* Files that hold tokens, mapped into memory and read as one stream: text, where a byte is a token, and token files of
 * 16 or 32 bits a token, with a header or without.
 *
 * A header is 256 int32 = 1,024 bytes: magic (20240520: uint16 tokens follow, 20240801: uint32), version (1 or 7),
 * number of tokens; the rest is not read. The file's size must match it. Numbers are little-endian.
 *
 * Reading leaves nothing resident: pages are dropped from this process after use, the system's cache keeps them.
 *
 * Every failure has code EXIT_DATA and names the config key and the file. */
#ifndef FSDP_LAUNCH_TOKEN_FILES_H
#define FSDP_LAUNCH_TOKEN_FILES_H

#include "engine/error.h"

#include <stddef.h>
#include <stdint.h>

typedef enum token_format {
    TOKEN_FORMAT_AUTO,     /* a file that starts with a header's magic is a token file, any other is text */
    TOKEN_FORMAT_TEXT,     /* bytes, whatever they are */
    TOKEN_FORMAT_TOKENS16, /* uint16, no header */
    TOKEN_FORMAT_TOKENS32  /* uint32, no header */
} token_format;

typedef struct token_file {
    char *path;
    const uint8_t *map; /* the whole file */
    int64_t bytes;
    int64_t start; /* bytes before the first token */
    int width;     /* bytes of a token: 1 (text), 2, 4 */
    int64_t first; /* place of its first token in the stream */
    int64_t count; /* tokens */
} token_file;

typedef struct token_stream {
    const char *key; /* "[data] train", for messages; not owned */
    token_file *files;
    int32_t count;  /* files */
    int64_t tokens; /* of all files */
    bool text;      /* bytes rather than token numbers; a stream is never both */
} token_stream;

/* Opens the files that `patterns` name, in this order. A pattern that is no existing path is expanded as glob(7), its
 * matches in byte order; one that matches nothing is an error. Reads at most a header of each file. On failure the
 * stream is closed. */
bool token_stream_open(const char *key, const char *const *patterns, int32_t pattern_count, token_format format,
                       token_stream *s, error *e);
void token_stream_close(token_stream *s);

/* Copies tokens first .. first + count of the stream; first + count <= tokens. Fails when a file was cut off since it
 * was opened. What is written into a file in the meantime is read as it is. */
bool token_stream_read(const token_stream *s, int64_t first, int64_t count, int32_t *tokens, error *e);

/* Finds the first token that is not below `vocabulary` (at most INT32_MAX), naming file, position in the file (from 0)
 * and value. Reads all files, unless no token of their width can be too large. */
bool token_stream_check(const token_stream *s, int64_t vocabulary, error *e);

#endif
