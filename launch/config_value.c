/* Values of config keys by type: from words, to words. */
#include "engine/checked.h"
#include "launch/config_keys.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int config_word_index(const char *words, const char *word) {
    size_t length = strlen(word);
    for (int index = 0;; index++) {
        size_t next = strcspn(words, "|");
        if (next == length && strncmp(words, word, length) == 0)
            return index;
        if (words[next] == '\0')
            return -1;
        words += next + 1;
    }
}

static bool inside(const config_range *range, double value) {
    bool above = range->open_low ? value > range->low : value >= range->low;
    bool below = range->open_high ? value < range->high : value <= range->high;
    return above && below;
}

/* Digits with an optional K, M or G. What does not fit in 64 bits becomes the nearest that does: out of every range. */
static bool parse_integer(const char *text, int64_t *value) {
    static const char suffixes[] = "KMG";
    const char *digits = text + (*text == '-' || *text == '+');
    if (*digits < '0' || *digits > '9')
        return false;
    char *end;
    *value = strtoll(text, &end, 10);
    if (*end == '\0')
        return true;
    const char *suffix = strchr(suffixes, *end);
    if (suffix == NULL || end[1] != '\0')
        return false;
    int64_t unit = INT64_C(1) << (10 * (suffix - suffixes + 1));
    if (__builtin_mul_overflow(*value, unit, value))
        *value = *text == '-' ? INT64_MIN : INT64_MAX;
    return true;
}

static bool parse_number(const char *text, double *value) {
    if (*text == '\0' || text[strspn(text, "0123456789+-.eE")] != '\0')
        return false;
    char *end;
    *value = strtod(text, &end);
    return *end == '\0';
}

static bool set_integer(const config_key *key, const char *word, int64_t *field, const char **problem) {
    int64_t value;
    if (key->words != NULL && strcmp(word, key->words) == 0) {
        *field = 0;
        return true;
    }
    *problem = "wrong type";
    if (!parse_integer(word, &value))
        return false;
    *problem = "out of range";
    if (!inside(&key->range, (double)value) || value == INT64_MAX)
        return false;
    *field = value;
    return true;
}

static bool set_number(const config_key *key, const char *word, double *field, const char **problem) {
    double value;
    if (key->words != NULL && strcmp(word, key->words) == 0) {
        *field = 0;
        return true;
    }
    *problem = "wrong type";
    if (!parse_number(word, &value))
        return false;
    *problem = "out of range";
    if (!isfinite(value) || !inside(&key->range, value))
        return false;
    *field = value;
    return true;
}

static bool set_word(const config_key *key, const char *word, int *field, const char **problem) {
    int index = config_word_index(key->words, word);
    *problem = "unknown word";
    if (index < 0)
        return false;
    *field = index;
    return true;
}

static void set_list(const ini_words *words, ini_words *list) {
    ini_words_free(list);
    list->items = memory_allocate(words->count, sizeof *list->items);
    list->count = words->count;
    for (size_t i = 0; i < words->count; i++)
        list->items[i] = memory_copy_string(words->items[i]);
}

static bool set_pair(const config_key *key, const ini_words *words, double *field, const char **problem) {
    double pair[2];
    for (int i = 0; i < 2; i++)
        if (!set_number(key, words->items[i], &pair[i], problem))
            return false;
    memcpy(field, pair, sizeof pair);
    return true;
}

static bool words_fit(const config_key *key, const ini_words *words, const char **problem) {
    *problem = "no value";
    for (size_t i = 0; i < words->count; i++)
        if (words->items[i][0] == '\0')
            return false;
    if (words->count == 0)
        return false;
    *problem = key->type == CONFIG_PAIR ? "two values expected" : "one value expected; double quotes keep blanks";
    return key->type == CONFIG_LIST || words->count == (key->type == CONFIG_PAIR ? 2 : 1);
}

bool config_value_set(config *c, const config_key *key, const ini_words *words, const char **problem) {
    if (!words_fit(key, words, problem))
        return false;
    void *field = config_field(c, key);
    switch (key->type) {
    case CONFIG_WORD:
        return set_word(key, words->items[0], field, problem);
    case CONFIG_INTEGER:
        return set_integer(key, words->items[0], field, problem);
    case CONFIG_NUMBER:
        return set_number(key, words->items[0], field, problem);
    case CONFIG_PAIR:
        return set_pair(key, words, field, problem);
    case CONFIG_LIST:
        set_list(words, field);
        return true;
    case CONFIG_TEXT:
        config_value_clear(c, key);
        *(char **)field = memory_copy_string(words->items[0]);
        return true;
    }
    return false;
}

void config_value_clear(config *c, const config_key *key) {
    void *field = config_field(c, key);
    switch (key->type) {
    case CONFIG_WORD:
        *(int *)field = -1;
        break;
    case CONFIG_INTEGER:
        *(int64_t *)field = 0;
        break;
    case CONFIG_NUMBER:
        *(double *)field = 0;
        break;
    case CONFIG_PAIR:
        memset(field, 0, 2 * sizeof(double));
        break;
    case CONFIG_LIST:
        ini_words_free(field);
        break;
    case CONFIG_TEXT:
        free(*(char **)field);
        *(char **)field = NULL;
        break;
    }
}

bool config_value_none(const config *c, const config_key *key) {
    const void *field = config_field(c, key);
    switch (key->type) {
    case CONFIG_WORD:
        return *(const int *)field < 0;
    case CONFIG_INTEGER:
        return key->initial == NULL && *(const int64_t *)field == 0;
    case CONFIG_LIST:
        return ((const ini_words *)field)->count == 0;
    case CONFIG_TEXT:
        return *(char *const *)field == NULL;
    case CONFIG_NUMBER:
    case CONFIG_PAIR:
        return false;
    }
    return false;
}

static char *word_at(const char *words, int index) {
    for (; index > 0; index--)
        words += strcspn(words, "|") + 1;
    return memory_format("%.*s", (int)strcspn(words, "|"), words);
}

char *config_value_text(const config *c, const config_key *key) {
    const void *field = config_field(c, key);
    if (config_value_none(c, key))
        return NULL;
    switch (key->type) {
    case CONFIG_WORD:
        return word_at(key->words, *(const int *)field);
    case CONFIG_INTEGER:
        if (key->words != NULL && *(const int64_t *)field == 0)
            return memory_copy_string(key->words);
        return memory_format("%lld", (long long)*(const int64_t *)field);
    case CONFIG_NUMBER:
        if (key->words != NULL && *(const double *)field == 0)
            return memory_copy_string(key->words);
        return memory_format("%g", *(const double *)field);
    case CONFIG_PAIR:
        return memory_format("%g %g", ((const double *)field)[0], ((const double *)field)[1]);
    case CONFIG_LIST:
        return ini_join(field);
    case CONFIG_TEXT:
        return memory_copy_string(*(char *const *)field);
    }
    return NULL;
}

static char *range_text(const char *what, const config_range *range) {
    const char *low = range->open_low ? "above " : "";
    if (isinf(range->high))
        return memory_format("%s, %s%.10g%s", what, low, range->low, range->open_low ? "" : " or more");
    if (range->open_high)
        return memory_format("%s, %.10g or more and below %.10g", what, range->low, range->high);
    return memory_format("%s, %.10g to %.10g", what, range->low, range->high);
}

/* "full|none" as "full | none". */
static char *words_text(const char *words) {
    char *text = memory_allocate(strlen(words) * 3 + 1, 1), *end = text;
    for (; *words != '\0'; words++)
        end = *words == '|' ? stpcpy(end, " | ") : stpncpy(end, words, 1);
    return text;
}

char *config_value_accepted(const config_key *key) {
    static const char *const numbers[] = {
        [CONFIG_INTEGER] = "a whole number", [CONFIG_NUMBER] = "a number", [CONFIG_PAIR] = "two numbers"};
    switch (key->type) {
    case CONFIG_WORD:
        return words_text(key->words);
    case CONFIG_LIST:
        return memory_copy_string(key->words != NULL ? key->words : "paths or globs");
    case CONFIG_TEXT:
        return memory_copy_string(key->words);
    case CONFIG_INTEGER:
    case CONFIG_NUMBER:
    case CONFIG_PAIR:
        break;
    }
    char *range = range_text(numbers[key->type], &key->range);
    if (key->words == NULL)
        return range;
    char *text = memory_format("%s | %s", key->words, range);
    free(range);
    return text;
}
