#include "launch/metrics.h"

#include "engine/checked.h"
#include "launch/output_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct metrics {
    char *path;
    int file;
};

static bool write_all(int file, const char *text, size_t length) {
    while (length > 0) {
        ssize_t written = write(file, text, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return false;
        text += written;
        length -= (size_t)written;
    }
    return true;
}

/* A run that was killed may have left half a line, which nobody can read any more: drops what stands behind the last
 * line that is whole. */
static bool drop_half_line(int file) {
    char block[4096];
    off_t size = lseek(file, 0, SEEK_END), end = size;
    while (end > 0) {
        const ssize_t length = end < (off_t)sizeof block ? end : (ssize_t)sizeof block;
        if (pread(file, block, (size_t)length, end - length) != length)
            return false;
        const char *newline = memrchr(block, '\n', (size_t)length);
        end -= length;
        if (newline != NULL) {
            end += newline + 1 - block;
            break;
        }
    }
    return end == size || ftruncate(file, end) == 0;
}

bool metrics_open(const char *folder, metrics **opened, error *e) {
    if (!output_folder_prepare(folder, e))
        return false;
    char *path = memory_format("%s/metrics.jsonl", folder);
    int file = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0 || !drop_half_line(file)) {
        error_set(e, EXIT_USAGE, "%s: cannot open for writing: %s", path, strerror(errno));
        if (file >= 0)
            close(file);
        free(path);
        return false;
    }
    *opened = memory_allocate(1, sizeof **opened);
    **opened = (metrics){path, file};
    return true;
}

void metrics_close(metrics *m) {
    if (m == NULL)
        return;
    close(m->file);
    free(m->path);
    free(m);
}

/* Takes back a line that did not fit whole, so that the file stays lines of JSON. */
static void take_back(const metrics *m, off_t end) {
    if (ftruncate(m->file, end) != 0)
        return; /* a device has no end to go back to */
}

/* Writes the line with one write, and frees the object. */
static bool write_event(metrics *m, json_t *event, error *e) {
    char *text = json_dumps(event, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(event);
    check(text != NULL, "an event of %s cannot be written as JSON", m->path);
    size_t length = strlen(text);
    text[length] = '\n'; /* in place of the ending zero: one write, one line */
    const off_t end = lseek(m->file, 0, SEEK_END);
    const bool good = write_all(m->file, text, length + 1);
    if (!good) {
        error_set_own(e, EXIT_USAGE, "%s: cannot write: %s", m->path, strerror(errno));
        take_back(m, end);
    }
    free(text);
    return good;
}

static void add_number(json_t *event, const char *name, double value) {
    json_object_set_new(event, name, isfinite(value) ? json_real(value) : json_null());
}

static void add_integer(json_t *event, const char *name, int64_t value) {
    json_object_set_new(event, name, json_integer(value));
}

static json_t *new_event(const char *kind) {
    json_t *event = json_object();
    json_object_set_new(event, "event", json_string(kind));
    return event;
}

bool metrics_start(metrics *m, json_t *fields, error *e) {
    json_t *event = new_event("start");
    json_object_update(event, fields);
    json_decref(fields);
    return write_event(m, event, e);
}

bool metrics_resume(metrics *m, json_t *fields, error *e) {
    json_t *event = new_event("resume");
    json_object_update(event, fields);
    json_decref(fields);
    return write_event(m, event, e);
}

bool metrics_step(metrics *m, const step_report *report, error *e) {
    json_t *event = new_event("step");
    add_integer(event, "step", report->step);
    add_number(event, "loss", report->loss);
    add_number(event, "gradient_norm", report->gradient_norm);
    add_number(event, "learning_rate", report->learning_rate);
    if (report->loss_scale > 0)
        add_number(event, "loss_scale", report->loss_scale);
    add_integer(event, "tokens", report->tokens);
    add_number(event, "seconds", report->seconds);
    add_number(event, "exposed", report->exposed);
    add_number(event, "compute", report->compute);
    add_number(event, "imbalance", report->imbalance);
    add_integer(event, "slowest", report->slowest);
    add_number(event, "exposed_gather", report->exposed_gather);
    add_number(event, "exposed_reduce", report->exposed_reduce);
    add_number(event, "idle", report->idle);
    add_number(event, "tokens_per_second", report->tokens_per_second);
    add_number(event, "tflops", report->tflops);
    add_number(event, "mfu", report->mfu);
    add_integer(event, "memory", report->memory);
    return write_event(m, event, e);
}

bool metrics_validation(metrics *m, int64_t step, double loss, error *e) {
    json_t *event = new_event("validation");
    add_integer(event, "step", step);
    add_number(event, "loss", loss);
    return write_event(m, event, e);
}

bool metrics_checkpoint_started(metrics *m, int64_t step, error *e) {
    json_t *event = new_event("checkpoint_started");
    add_integer(event, "step", step);
    return write_event(m, event, e);
}

bool metrics_checkpoint(metrics *m, int64_t step, double seconds, double stall, error *e) {
    json_t *event = new_event("checkpoint");
    add_integer(event, "step", step);
    add_number(event, "seconds", seconds);
    add_number(event, "stall", stall);
    return write_event(m, event, e);
}

bool metrics_end(metrics *m, end_reason reason, int64_t step, double seconds, const char *message, error *e) {
    static const char *const names[] = {[END_FINISHED] = "finished", [END_SIGNAL] = "signal", [END_ERROR] = "error"};
    json_t *event = new_event("end");
    json_object_set_new(event, "reason", json_string(names[reason]));
    add_integer(event, "step", step);
    add_number(event, "seconds", seconds);
    json_t *text = message != NULL ? json_string(message) : NULL;
    if (message != NULL)
        json_object_set_new(event, "message", text != NULL ? text : json_null());
    return write_event(m, event, e);
}
