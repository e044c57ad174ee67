#include "engine/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static bool describe(error *e, int code, bool own, const char *format, va_list arguments) {
    if (e->code != 0)
        return false;
    e->code = code;
    e->own = own;
    vsnprintf(e->message, sizeof e->message, format, arguments);
    return false;
}

bool error_set(error *e, int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    describe(e, code, false, format, arguments);
    va_end(arguments);
    return false;
}

bool error_set_own(error *e, int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    describe(e, code, true, format, arguments);
    va_end(arguments);
    return false;
}

void check_failed(const char *file, int line, const char *condition, const char *format, ...) {
    va_list arguments;
    fprintf(stderr, "fsdp_train: internal fault at %s:%d: %s: ", file, line, condition);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    abort();
}
