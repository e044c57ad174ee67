#include "engine/checked.h"

#include "engine/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *memory_allocate(size_t count, size_t size) {
    void *pointer = calloc(count > 0 ? count : 1, size > 0 ? size : 1);
    check(pointer != NULL, "out of host memory for %zu x %zu bytes", count, size);
    return pointer;
}

void *memory_grow(void *pointer, size_t count, size_t size) {
    check(size == 0 || count <= SIZE_MAX / size, "%zu x %zu bytes overflow", count, size);
    void *grown = realloc(pointer, count * size > 0 ? count * size : 1);
    check(grown != NULL, "out of host memory for %zu x %zu bytes", count, size);
    return grown;
}

char *memory_copy_string(const char *text) {
    size_t bytes = strlen(text) + 1;
    return memcpy(memory_allocate(bytes, 1), text, bytes);
}

char *memory_format(const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    check(length >= 0, "cannot format \"%s\"", format);
    char *text = memory_allocate((size_t)length + 1, 1);
    vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

bool checked_multiply(int64_t a, int64_t b, int64_t *product) {
    return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, product);
}

int64_t must_multiply(int64_t a, int64_t b) {
    int64_t product = 0;
    check(checked_multiply(a, b, &product), "%lld x %lld overflows", (long long)a, (long long)b);
    return product;
}
