/* The words of a command, as a program is started with them. */
#ifndef FSDP_LAUNCH_WORDS_H
#define FSDP_LAUNCH_WORDS_H

#include <stddef.h>

typedef struct words {
    char **items; /* [count], owned; a NULL behind them, except where there are none */
    size_t count;
} words;

void words_add(words *w, char *word); /* which the words own from here on */
void words_add_copy(words *w, const char *word);
/* At every one of these characters; there are no empty words, and no quotes. */
void words_add_split(words *w, const char *text, const char *separators);
char *words_join(const words *w); /* with a blank in between; freed by the caller */
void words_free(words *w);

#endif
