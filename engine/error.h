/* Errors as values: a function that can fail returns bool and describes the failure in an `error` that the
 * caller owns. The first failure is kept; later ones do not overwrite it. Nothing is printed here: main meets the
 * other ranks (comm/world.h) and the text is printed once. */
#ifndef FSDP_ENGINE_ERROR_H
#define FSDP_ENGINE_ERROR_H

#include <stdbool.h>

/* Exit codes of a rank, as documented for users. 128 + n: ended by signal n after an orderly stop. */
enum exit_code {
    EXIT_FINISHED = 0,
    EXIT_INTERNAL = 1, /* a fault of this program */
    EXIT_USAGE = 2,    /* command line or config */
    EXIT_DATA = 3,     /* training or validation data */
    EXIT_MODEL = 4,    /* checkpoint or model files */
    EXIT_LAUNCH = 5    /* launch, communication or device */
};

typedef struct error {
    int code;           /* enum exit_code; 0: nothing went wrong */
    bool own;           /* true: only this rank saw it (a full disk, a lost peer), so the text must name the rank */
    char message[2000]; /* what was found, what was expected, what to do; no newline at the end */
} error;

/* Describes a failure that every rank sees alike (bad config, bad data). Always returns false, so that
 * `return error_set(e, EXIT_USAGE, ...)` reads as one thought. Keeps an earlier failure. */
bool error_set(error *e, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same for a failure that only this rank sees. */
bool error_set_own(error *e, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* A broken invariant of this program: prints file, line and text, then aborts. Not for users' mistakes. */
#define check(condition, ...) ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition, __VA_ARGS__))
_Noreturn void check_failed(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
