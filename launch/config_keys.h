/* The table of keys, which drives parsing, messages, --keys and the resolved config in metrics.jsonl. Private to
 * config*.c. */
#ifndef FSDP_LAUNCH_CONFIG_KEYS_H
#define FSDP_LAUNCH_CONFIG_KEYS_H

#include "launch/config.h"

#include <stdint.h>

typedef enum config_type {
    CONFIG_WORD,    /* int: place in `words` */
    CONFIG_TEXT,    /* char * */
    CONFIG_LIST,    /* ini_words */
    CONFIG_INTEGER, /* int64_t; K, M and G behind the digits are powers of two */
    CONFIG_NUMBER,  /* double */
    CONFIG_PAIR     /* double[2] */
} config_type;

/* Numbers from low to high; an open end is excluded. high INFINITY: no limit. */
typedef struct config_range {
    double low, high;
    bool open_low, open_high;
} config_range;

typedef struct config_key {
    const char *section, *name;
    config_type type;
    size_t offset;       /* of the field in config */
    const char *initial; /* the default as one would type it; NULL: none, or derived */
    const char *derived; /* what holds when the key is not given: "width / heads"; NULL: nothing */
    const char *words;   /* accepted, "full|none"; of a number: one word that stands for 0; of a text: what it may be */
    const char *built;   /* of all that is accepted, what is built so far, "full|none"; NULL: everything */
    config_range range;
    bool required;
    const char *help;
} config_key;

extern const config_key config_keys[];
extern const int config_key_count;

/* The key whose field is at this place in c. */
const config_key *config_key_of(const config *c, const void *field);
config_source *config_source_of(const config *c, const config_key *key);

static inline void *config_field(const config *c, const config_key *key) {
    return (char *)(uintptr_t)c + key->offset;
}

/* Place of `word` in "full|none"; -1: not there. */
int config_word_index(const char *words, const char *word);

/* Stores the words as the key's value. On failure *problem says what is wrong, as in "out of range". */
bool config_value_set(config *c, const config_key *key, const ini_words *words, const char **problem);

/* What the key accepts: "full | none", "a whole number, 1 or more"; the caller frees it. */
char *config_value_accepted(const config_key *key);

/* The value as one would type it, quotes aside; NULL: none. The caller frees it. */
char *config_value_text(const config *c, const config_key *key);

/* Whether the value is none: not given, no default, not derived yet. */
bool config_value_none(const config *c, const config_key *key);

/* Frees the value and makes it none. */
void config_value_clear(config *c, const config_key *key);

#endif
