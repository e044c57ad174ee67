/* The table of keys for people (--keys) and a config's values for programs (the start event). */
#include "engine/checked.h"
#include "launch/config_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "train.micro_batch = 1", "model.kv_heads = (heads)" */
static char *key_with_default(const config_key *key) {
    if (key->initial != NULL)
        return memory_format("%s.%s = %s", key->section, key->name, key->initial);
    const char *otherwise = key->derived != NULL ? key->derived : key->required ? "required" : "none";
    return memory_format("%s.%s = (%s)", key->section, key->name, otherwise);
}

void config_print_keys(FILE *out) {
    fputs("Keys of config.ini, written as overrides on the command line; in the file they stand in [section].\n"
          "After = is the default, in round brackets what holds without one; then the meaning; then [what\n"
          "is accepted]. Whole numbers may end in K, M or G (powers of two); lists are separated by blanks.\n",
          out);
    for (int i = 0; i < config_key_count; i++) {
        const config_key *key = &config_keys[i];
        char *name = key_with_default(key), *accepted = config_value_accepted(key);
        if (i == 0 || strcmp(key->section, key[-1].section) != 0)
            fputc('\n', out);
        fprintf(out, "%-36s  %s [%s]", name, key->help, accepted);
        if (key->built != NULL)
            fprintf(out, " (built so far: %s)", *key->built != '\0' ? key->built : "nothing");
        fputc('\n', out);
        free(accepted);
        free(name);
    }
}

/* null for a path that is not UTF-8, which JSON cannot hold. */
static json_t *text_json(const char *text) {
    json_t *string = json_string(text);
    return string != NULL ? string : json_null();
}

static json_t *list_json(const ini_words *list) {
    json_t *array = json_array();
    for (size_t i = 0; i < list->count; i++)
        json_array_append_new(array, text_json(list->items[i]));
    return array;
}

static json_t *word_json(const config *c, const config_key *key) {
    char *text = config_value_text(c, key);
    json_t *string = json_string(text);
    free(text);
    return string;
}

static json_t *value_json(const config *c, const config_key *key) {
    const void *field = config_field(c, key);
    bool is_word = key->words != NULL && key->type != CONFIG_TEXT;
    if (config_value_none(c, key))
        return json_null();
    switch (key->type) {
    case CONFIG_WORD:
        return word_json(c, key);
    case CONFIG_TEXT:
        return text_json(*(char *const *)field);
    case CONFIG_LIST:
        return list_json(field);
    case CONFIG_INTEGER:
        return is_word && *(const int64_t *)field == 0 ? word_json(c, key) : json_integer(*(const int64_t *)field);
    case CONFIG_NUMBER:
        return is_word && *(const double *)field == 0 ? word_json(c, key) : json_real(*(const double *)field);
    case CONFIG_PAIR:
        return json_pack("[ff]", ((const double *)field)[0], ((const double *)field)[1]);
    }
    return NULL;
}

json_t *config_json(const config *c) {
    json_t *sections = json_object();
    for (int i = 0; i < config_key_count; i++) {
        const config_key *key = &config_keys[i];
        json_t *section = json_object_get(sections, key->section);
        if (section == NULL) {
            section = json_object();
            json_object_set_new(sections, key->section, section);
        }
        json_object_set_new(section, key->name, value_json(c, key));
    }
    return sections;
}
