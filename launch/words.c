#include "launch/words.h"

#include "engine/checked.h"

#include <stdlib.h>
#include <string.h>

void words_add(words *w, char *word) {
    w->items = memory_grow(w->items, w->count + 2, sizeof *w->items);
    w->items[w->count++] = word;
    w->items[w->count] = NULL;
}

void words_add_copy(words *w, const char *word) {
    words_add(w, memory_copy_string(word));
}

void words_add_split(words *w, const char *text, const char *separators) {
    for (;;) {
        text += strspn(text, separators);
        const size_t length = strcspn(text, separators);
        if (length == 0)
            return;
        words_add(w, memory_format("%.*s", (int)length, text));
        text += length;
    }
}

char *words_join(const words *w) {
    char *text = memory_copy_string("");
    for (size_t i = 0; i < w->count; i++) {
        char *longer = memory_format("%s%s%s", text, i > 0 ? " " : "", w->items[i]);
        free(text);
        text = longer;
    }
    return text;
}

void words_free(words *w) {
    for (size_t i = 0; i < w->count; i++)
        free(w->items[i]);
    free(w->items);
}
