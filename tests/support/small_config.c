#include "support/small_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

const char small_config[] = "[model]\n"
                            "family = llama\n"
                            "layers = 2\n"
                            "width = 64\n"
                            "heads = 8\n"
                            "context = 32\n"
                            "[data]\n"
                            "train = text.txt\n"
                            "[train]\n"
                            "steps = 3\n"
                            "global_batch = 8\n";

void small_config_write(const char *text, const char *more) {
    FILE *f = fopen("config.ini", "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0 && fputs(more, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

enum { ARGUMENTS = 4 };

/* Up to the first NULL. */
static int count_arguments(const char *const *arguments) {
    int count = 0;
    while (count < ARGUMENTS && arguments[count] != NULL)
        count++;
    return count;
}

config *small_config_read(const char *text, const char *more, const char *const *arguments) {
    error e = {0};
    config *c = NULL;
    small_config_write(text, more);
    config_read("config.ini", arguments, arguments != NULL ? count_arguments(arguments) : 0, &c, &e);
    assert_string_equal(e.message, "");
    return c;
}

model_shape small_config_resolve(config *c, const model_shape *from, int64_t tokenizer) {
    error e = {0};
    model_shape shape = {0};
    config_resolve_model(c, from, tokenizer, &shape, &e);
    assert_string_equal(e.message, "");
    return shape;
}
