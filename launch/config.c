/* Reading a config: the file's entries and the arguments are applied to the table of keys one by one. */
#include "launch/config.h"

#include "engine/checked.h"
#include "launch/config_keys.h"
#include "launch/nearest.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A key's value on its way into the config. */
typedef struct assignment {
    const char *where; /* "config.ini:12", "argument train.steps=7" */
    bool argument;
    const char *section, *name;
    const ini_words *words;
} assignment;

/* The value is shown once: it stands in `where` already when an argument gave it. */
static bool refuse_at(const char *where, bool argument, const config_key *key, const char *value, const char *problem,
                      error *e) {
    if (argument || value == NULL)
        return error_set(e, EXIT_USAGE, "%s: [%s] %s: %s", where, key->section, key->name, problem);
    return error_set(e, EXIT_USAGE, "%s: [%s] %s = %s: %s", where, key->section, key->name, value, problem);
}

bool config_refuse(const config *c, const void *field, error *e, const char *format, ...) {
    const config_key *key = config_key_of(c, field);
    const config_source *source = config_source_of(c, key);
    char problem[1000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem, sizeof problem, format, arguments);
    va_end(arguments);
    char *value = source->where != NULL ? memory_copy_string(source->text) : config_value_text(c, key);
    refuse_at(source->where != NULL ? source->where : c->path, source->argument, key, value, problem, e);
    free(value);
    return false;
}

bool config_given(const config *c, const void *field) {
    return config_source_of(c, config_key_of(c, field))->where != NULL;
}

/* The names of all sections, or of one section's keys, "a, b, c"; the caller frees it. */
static char *list_names(const char *section) {
    char *list = memory_copy_string("");
    for (int i = 0; i < config_key_count; i++) {
        const config_key *key = &config_keys[i];
        bool first_of_section = i == 0 || strcmp(key->section, key[-1].section) != 0;
        if (section == NULL ? !first_of_section : strcmp(key->section, section) != 0)
            continue;
        char *longer =
            memory_format("%s%s%s", list, *list == '\0' ? "" : ", ", section == NULL ? key->section : key->name);
        free(list);
        list = longer;
    }
    return list;
}

static const config_key *find_key(const char *section, const char *name) {
    for (int i = 0; i < config_key_count; i++)
        if ((section == NULL || strcmp(config_keys[i].section, section) == 0) && strcmp(config_keys[i].name, name) == 0)
            return &config_keys[i];
    return NULL;
}

static bool known_section(const char *where, const char *section, error *e) {
    const char *nearest = NULL;
    for (int i = 0; i < config_key_count; i++) {
        if (strcmp(config_keys[i].section, section) == 0)
            return true;
        nearest_consider(section, config_keys[i].section, &nearest);
    }
    if (nearest != NULL)
        return error_set(e, EXIT_USAGE, "%s: [%s]: unknown section; did you mean [%s]?", where, section, nearest);
    char *names = list_names(NULL);
    error_set(e, EXIT_USAGE, "%s: [%s]: unknown section; accepted is %s", where, section, names);
    free(names);
    return false;
}

/* Explains a key that its section does not have: it stands in another section, is mistyped, or is nothing like any. */
static bool unknown_key(const assignment *a, error *e) {
    const char *nearest = NULL;
    const config_key *elsewhere = find_key(NULL, a->name);
    for (int i = 0; i < config_key_count; i++)
        if (strcmp(config_keys[i].section, a->section) == 0)
            nearest_consider(a->name, config_keys[i].name, &nearest);
    if (elsewhere == NULL && nearest != NULL)
        return error_set(e, EXIT_USAGE, "%s: [%s] %s: unknown key; did you mean %s?", a->where, a->section, a->name,
                         nearest);
    if (elsewhere != NULL)
        return error_set(e, EXIT_USAGE, "%s: [%s] %s: unknown key; did you mean [%s] %s?", a->where, a->section,
                         a->name, elsewhere->section, elsewhere->name);
    char *names = list_names(a->section);
    error_set(e, EXIT_USAGE, "%s: [%s] %s: unknown key; accepted is %s", a->where, a->section, a->name, names);
    free(names);
    return false;
}

static bool refuse_value(const assignment *a, const config_key *key, const char *problem, error *e) {
    char *value = ini_join(a->words), *accepted = config_value_accepted(key);
    char *text = memory_format("%s; accepted is %s", problem, accepted);
    refuse_at(a->where, a->argument, key, a->words->count > 0 ? value : NULL, text, e);
    free(text);
    free(accepted);
    free(value);
    return false;
}

static void source_clear(config_source *source) {
    free(source->where);
    free(source->text);
    *source = (config_source){0};
}

/* Stores a value; `key =` without one takes back what the file said, where a key may have none. */
static bool assign(config *c, const assignment *a, error *e) {
    if (!known_section(a->where, a->section, e))
        return false;
    const config_key *key = find_key(a->section, a->name);
    if (key == NULL)
        return unknown_key(a, e);
    config_source *source = config_source_of(c, key);
    if (source->where != NULL && source->argument == a->argument) {
        char *value = ini_join(a->words), *problem = memory_format("given twice; first in %s", source->where);
        refuse_at(a->where, a->argument, key, value, problem, e);
        free(problem);
        free(value);
        return false;
    }
    const char *problem;
    bool none = a->words->count == 0 && key->initial == NULL && !key->required;
    if (none)
        config_value_clear(c, key);
    else if (!config_value_set(c, key, a->words, &problem))
        return refuse_value(a, key, problem, e);
    source_clear(source);
    if (!none)
        *source = (config_source){memory_copy_string(a->where), ini_join(a->words), a->argument};
    return true;
}

static bool assign_file(config *c, const ini_file *file, error *e) {
    bool good = true;
    for (size_t i = 0; good && i < file->count; i++) {
        const ini_entry *entry = &file->entries[i];
        char *where = memory_format("%s:%d", c->path, entry->line);
        if (entry->key == NULL)
            good = known_section(where, entry->section, e);
        else
            good = assign(c, &(assignment){where, false, entry->section, entry->key, &entry->words}, e);
        free(where);
    }
    return good;
}

static bool not_an_assignment(const char *where, const char *name, error *e) {
    const config_key *key = find_key(NULL, name);
    if (key == NULL)
        return error_set(e, EXIT_USAGE, "%s: overrides are written section.key=value", where);
    return error_set(e, EXIT_USAGE, "%s: overrides are written section.key=value; did you mean %s.%s=...?", where,
                     key->section, key->name);
}

static bool assign_argument(config *c, const char *argument, error *e) {
    size_t key_length = strcspn(argument, "=");
    char *where = memory_format("argument %s", argument), *section = memory_format("%.*s", (int)key_length, argument);
    char *dot = strchr(section, '.');
    ini_words words = {0};
    bool good;
    if (dot == NULL || argument[key_length] == '\0') {
        good = not_an_assignment(where, section, e);
    } else if (!ini_split(argument + key_length + 1, false, &words)) {
        good = error_set(e, EXIT_USAGE, "%s: a double quote is not closed", where);
    } else {
        *dot = '\0';
        good = assign(c, &(assignment){where, true, section, dot + 1, &words}, e);
    }
    ini_words_free(&words);
    free(section);
    free(where);
    return good;
}

static bool is_built(const config *c, const config_key *key) {
    char *text = config_value_text(c, key);
    bool built = key->built == NULL || text == NULL || config_word_index(key->built, text) >= 0;
    free(text);
    return built;
}

/* Refuses what belongs to later work by name, and names what is missing. */
static bool check_keys(const config *c, error *e) {
    for (int i = 0; i < config_key_count; i++) {
        const config_key *key = &config_keys[i];
        const void *field = config_field(c, key);
        if (!is_built(c, key) && *key->built == '\0')
            return config_refuse(c, field, e, "not built yet");
        if (!is_built(c, key)) {
            const config_key built = {.type = CONFIG_WORD, .words = key->built};
            char *accepted = config_value_accepted(&built);
            config_refuse(c, field, e, "not built yet; built is %s", accepted);
            free(accepted);
            return false;
        }
        if (key->required && config_value_none(c, key)) {
            char *accepted = config_value_accepted(key);
            config_refuse(c, field, e, "required key is missing; accepted is %s", accepted);
            free(accepted);
            return false;
        }
    }
    return true;
}

static config *create(const char *path) {
    config *c = memory_allocate(1, sizeof *c);
    c->path = memory_copy_string(path);
    c->sources = memory_allocate((size_t)config_key_count, sizeof *c->sources);
    for (int i = 0; i < config_key_count; i++) {
        const config_key *key = &config_keys[i];
        config_value_clear(c, key);
        if (key->initial == NULL)
            continue;
        ini_words words;
        const char *problem = "quotes";
        bool good = ini_split(key->initial, false, &words) && config_value_set(c, key, &words, &problem);
        check(good, "default of [%s] %s: %s", key->section, key->name, problem);
        ini_words_free(&words);
    }
    return c;
}

/* out/quickstart for launch/configs/quickstart.ini */
static char *default_folder(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    size_t length = strlen(name);
    if (length > 4 && strcmp(name + length - 4, ".ini") == 0)
        length -= 4;
    return memory_format("out/%.*s", (int)length, name);
}

bool config_read(const char *path, const char *const *arguments, int argument_count, config **read, error *e) {
    ini_file file;
    if (!ini_read(path, &file, e))
        return false;
    config *c = create(path);
    bool good = assign_file(c, &file, e);
    ini_free(&file);
    for (int i = 0; good && i < argument_count; i++)
        good = assign_argument(c, arguments[i], e);
    if (!good || !check_keys(c, e)) {
        config_free(c);
        return false;
    }
    if (c->output.folder == NULL)
        c->output.folder = default_folder(path);
    *read = c;
    return true;
}

void config_free(config *c) {
    if (c == NULL)
        return;
    for (int i = 0; i < config_key_count; i++) {
        config_value_clear(c, &config_keys[i]);
        source_clear(&c->sources[i]);
    }
    free(c->sources);
    free(c->path);
    free(c);
}
