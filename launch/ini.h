/* Reads INI files: sections, `key = value` lines, comments. Lines may have any length; every line number is kept for
 * messages.
 *
 *   [section]            `;` and `#` start a comment at a line's start or after a blank
 *   key = one two        a value is a list of words separated by blanks, possibly empty
 *   key = "a # b" c      double quotes keep blanks and comment signs; they may stand anywhere in a word */
#ifndef FSDP_LAUNCH_INI_H
#define FSDP_LAUNCH_INI_H

#include "engine/error.h"

#include <stddef.h>

typedef struct ini_words {
    char **items;
    size_t count;
} ini_words;

/* A key with its value, or the header of a section (key NULL). */
typedef struct ini_entry {
    int line; /* from 1 */
    char *section, *key;
    ini_words words;
} ini_entry;

typedef struct ini_file {
    ini_entry *entries; /* in the file's order */
    size_t count;
} ini_file;

/* Errors (EXIT_USAGE) name path:line. On failure nothing is left to free. */
bool ini_read(const char *path, ini_file *file, error *e);
void ini_free(ini_file *file);

/* Splits a value into words; `comments`: whether `;` and `#` start one. False: a double quote that is not closed. */
bool ini_split(const char *text, bool comments, ini_words *words);
void ini_words_free(ini_words *words);

/* The words joined by single blanks; the caller frees it. */
char *ini_join(const ini_words *words);

#endif
