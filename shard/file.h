/* Files and folders, with errors that name the path and the system's reason (code EXIT_MODEL). */
#ifndef FSDP_SHARD_FILE_H
#define FSDP_SHARD_FILE_H

#include "engine/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads or writes exactly `bytes` at `offset`; a file that ends earlier is an error. `path` is for the message. */
bool file_read_at(int descriptor, const char *path, void *to, size_t bytes, int64_t offset, error *e);
bool file_write_at(int descriptor, const char *path, const void *from, size_t bytes, int64_t offset, error *e);

/* The whole file, and a NUL behind it; freed by the caller. */
bool file_load(const char *path, char **contents, size_t *bytes, error *e);

/* A JSON file whose top is an object, repeated keys refused. NULL on failure; json_decref() releases it. */
json_t *file_load_json(const char *path, error *e);

/* Writes a whole new file and its bytes to the disk. */
bool file_create(const char *path, const void *contents, size_t bytes, error *e);
bool file_copy(const char *from, const char *to, error *e);

bool file_exists(const char *path);

/* Makes a folder, or that and those above it, and their names durable; one that is there is fine. False with errno set.
 */
bool folder_make_one(const char *path);
bool folder_make(const char *path);

/* Makes the names inside a folder durable. */
bool folder_sync(const char *path, error *e);

/* The name of a folder inside this folder, freed by the caller; NULL: there is none. */
char *folder_find_folder(const char *path);

/* Removes a folder of plain files; one that is not there is fine, one that holds a folder is an error. Of a link or a
 * file only the name goes. */
bool folder_remove(const char *path, error *e);

#endif
