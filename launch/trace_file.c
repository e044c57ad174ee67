#include "launch/trace_file.h"

#include "comm/clock.h"
#include "engine/checked.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* This rank's events as text. */
static char *render(world *w, trace *t, int64_t first, int64_t last, const clock_offset *clock, size_t *length) {
    char *text = NULL;
    FILE *to = open_memstream(&text, length);
    check(to != NULL, "no memory for the trace");
    /* Zero is the start of the first step on the rank that was first, on rank 0's clock. */
    const double began = trace_step(t, first)->started - clock->seconds;
    const trace_rank of = {.rank = w->rank, .host = w->host, .origin = -world_maximum(w, -began) + clock->seconds};
    trace_write(t, first, last, &of, to);
    check(fclose(to) == 0, "no memory for the trace");
    return text;
}

/* On rank 0: the events of all ranks, one after the other; to == NULL: only takes what the others send. */
static void collect(world *w, const char *mine, size_t length, FILE *to) {
    if (to != NULL)
        fwrite(mine, 1, length, to);
    for (int rank = 1; rank < w->size; rank++) {
        uint64_t bytes;
        world_receive(w, &bytes, sizeof bytes, rank);
        char *text = memory_allocate(bytes, 1);
        world_receive(w, text, bytes, rank);
        if (to != NULL)
            fputs(",\n", to);
        if (to != NULL)
            fwrite(text, 1, bytes, to);
        free(text);
    }
}

static void send(world *w, const char *text, size_t length) {
    const uint64_t bytes = length;
    world_send(w, &bytes, sizeof bytes, 0);
    world_send(w, text, length, 0);
}

/* False with errno set. */
static bool write_file(world *w, const char *mine, size_t length, double clock_error, const char *path) {
    FILE *to = fopen(path, "we");
    int reason = errno;
    if (to != NULL)
        fprintf(to,
                "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"program\":\"fsdp_train %s\",\"ranks\":%d,"
                "\"nodes\":%d,\"clock_error_seconds\":%.9f},\"traceEvents\":[\n",
                FSDP_VERSION, w->size, w->nodes, clock_error);
    collect(w, mine, length, to);
    if (to != NULL) {
        fputs("\n]}\n", to);
        const bool written = fflush(to) == 0 && ferror(to) == 0 && fsync(fileno(to)) == 0;
        reason = written ? 0 : errno;
        fclose(to);
    }
    errno = reason;
    return to != NULL && reason == 0;
}

bool trace_file_write(world *w, trace *t, int64_t first, int64_t last, const char *folder, error *e) {
    const clock_offset clock = clock_compare(w);
    const double clock_error = world_maximum(w, clock.error);
    size_t length = 0;
    char *mine = render(w, t, first, last, &clock, &length);
    bool good = true;
    if (w->rank > 0) {
        send(w, mine, length);
    } else {
        char *path = memory_format("%s/trace.json", folder), *partial = memory_format("%s/.trace.json.partial", folder);
        good = write_file(w, mine, length, clock_error, partial) && rename(partial, path) == 0;
        if (!good) {
            error_set_own(e, EXIT_USAGE, "%s: cannot write: %s", path, strerror(errno));
            unlink(partial);
        }
        free(path);
        free(partial);
    }
    free(mine);
    return good;
}
