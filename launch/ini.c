#include "launch/ini.h"

#include "engine/checked.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static bool is_comment(char c) {
    return c == ';' || c == '#';
}

static void words_add(ini_words *words, char *word) {
    words->items = memory_grow(words->items, words->count + 1, sizeof *words->items);
    words->items[words->count++] = word;
}

void ini_words_free(ini_words *words) {
    for (size_t i = 0; i < words->count; i++)
        free(words->items[i]);
    free(words->items);
    *words = (ini_words){0};
}

/* Behind the word that starts here; NULL: a quote is not closed. */
static const char *word_end(const char *text) {
    bool quoted = false;
    for (; *text != '\0' && (quoted || !is_blank(*text)); text++)
        if (*text == '"')
            quoted = !quoted;
    return quoted ? NULL : text;
}

static char *copy_unquoted(const char *first, const char *end) {
    char *word = memory_allocate((size_t)(end - first) + 1, 1), *next = word;
    for (; first < end; first++)
        if (*first != '"')
            *next++ = *first;
    return word;
}

bool ini_split(const char *text, bool comments, ini_words *words) {
    *words = (ini_words){0};
    for (;;) {
        while (is_blank(*text))
            text++;
        if (*text == '\0' || (comments && is_comment(*text)))
            return true;
        const char *end = word_end(text);
        if (end == NULL) {
            ini_words_free(words);
            return false;
        }
        words_add(words, copy_unquoted(text, end));
        text = end;
    }
}

char *ini_join(const ini_words *words) {
    size_t bytes = 1;
    for (size_t i = 0; i < words->count; i++)
        bytes += strlen(words->items[i]) + 1;
    char *text = memory_allocate(bytes, 1), *end = text;
    for (size_t i = 0; i < words->count; i++) {
        if (i > 0)
            *end++ = ' ';
        end = stpcpy(end, words->items[i]);
    }
    return text;
}

static ini_entry *add_entry(ini_file *file, int line, const char *section, char *key) {
    file->entries = memory_grow(file->entries, file->count + 1, sizeof *file->entries);
    ini_entry *entry = &file->entries[file->count++];
    *entry = (ini_entry){.line = line, .section = memory_copy_string(section), .key = key};
    return entry;
}

/* The text from `first` up to `end`, without blanks at its ends. */
static char *copy_trimmed(const char *first, const char *end) {
    while (first < end && is_blank(*first))
        first++;
    while (end > first && is_blank(end[-1]))
        end--;
    char *text = memory_allocate((size_t)(end - first) + 1, 1);
    return memcpy(text, first, (size_t)(end - first));
}

static bool only_comment(const char *text) {
    const char *first = text;
    while (is_blank(*text))
        text++;
    return *text == '\0' || (is_comment(*text) && text > first);
}

static bool read_header(const char *path, int line, const char *text, ini_file *file, error *e) {
    const char *end = strchr(text, ']');
    if (end == NULL || !only_comment(end + 1))
        return error_set(e, EXIT_USAGE, "%s:%d: %s: a section is written [name], alone on its line", path, line, text);
    char *section = copy_trimmed(text + 1, end);
    add_entry(file, line, section, NULL);
    free(section);
    return true;
}

static bool read_key(const char *path, int line, const char *text, ini_file *file, error *e) {
    const char *equals = strchr(text, '=');
    if (equals == NULL)
        return error_set(e, EXIT_USAGE, "%s:%d: %s: neither [section] nor key = value", path, line, text);
    if (file->count == 0)
        return error_set(e, EXIT_USAGE, "%s:%d: %s: stands before the first [section]", path, line, text);
    char *key = copy_trimmed(text, equals);
    ini_entry *entry = add_entry(file, line, file->entries[file->count - 1].section, key);
    if (!ini_split(equals + 1, true, &entry->words))
        return error_set(e, EXIT_USAGE, "%s:%d: [%s] %s: a double quote is not closed", path, line, entry->section,
                         key);
    return true;
}

static bool read_line(const char *path, int line, const char *text, ini_file *file, error *e) {
    while (is_blank(*text))
        text++;
    if (*text == '\0' || is_comment(*text))
        return true;
    return *text == '[' ? read_header(path, line, text, file, e) : read_key(path, line, text, file, e);
}

static bool read_lines(const char *path, FILE *input, ini_file *file, error *e) {
    static const char byte_order_mark[] = "\xEF\xBB\xBF";
    char *text = NULL;
    size_t capacity = 0;
    ssize_t length;
    bool good = true;
    for (int line = 1; good && (length = getline(&text, &capacity, input)) >= 0; line++) {
        const char *first = text;
        if (line == 1 && strncmp(first, byte_order_mark, 3) == 0)
            first += 3;
        text[strcspn(text, "\n")] = '\0';
        if (strlen(text) + 1 < (size_t)length)
            good = error_set(e, EXIT_USAGE, "%s:%d: holds a zero byte: not a text file", path, line);
        else
            good = read_line(path, line, first, file, e);
    }
    if (good && ferror(input))
        good = error_set(e, EXIT_USAGE, "%s: cannot read the config file: %s", path, strerror(errno));
    free(text);
    return good;
}

bool ini_read(const char *path, ini_file *file, error *e) {
    *file = (ini_file){0};
    FILE *input = fopen(path, "r");
    if (input == NULL)
        return error_set(e, EXIT_USAGE, "%s: cannot open the config file: %s", path, strerror(errno));
    bool good = read_lines(path, input, file, e);
    fclose(input);
    if (!good)
        ini_free(file);
    return good;
}

void ini_free(ini_file *file) {
    for (size_t i = 0; i < file->count; i++) {
        free(file->entries[i].section);
        free(file->entries[i].key);
        ini_words_free(&file->entries[i].words);
    }
    free(file->entries);
    *file = (ini_file){0};
}
