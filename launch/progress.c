#include "launch/progress.h"

#include "engine/checked.h"
#include "launch/terminal.h"

#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct progress {
    FILE *out;
    int terminal; /* -1: a plain stream */
    int64_t first_step, steps, log_every;
    double started, drawn; /* seconds of the clock */
    bool bar_shown;        /* the cursor stands behind a bar */
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* 12345.6 as "12,346" */
static void format_thousands(double value, char text[32]) {
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%.0f", value), written = 0;
    if (!isfinite(value) || value < 0 || length > 20) {
        snprintf(text, 32, "%.4g", value);
        return;
    }
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[written++] = ',';
        text[written++] = digits[i];
    }
    text[written] = '\0';
}

/* "1:23", "2:01:05" */
static void format_duration(double seconds, char text[32]) {
    if (!(seconds >= 0 && seconds < 1e9)) {
        snprintf(text, 32, "-");
        return;
    }
    int64_t whole = llround(seconds), hours = whole / 3600, minutes = whole / 60 % 60;
    if (hours > 0)
        snprintf(text, 32, "%lld:%02d:%02d", (long long)hours, (int)minutes, (int)(whole % 60));
    else
        snprintf(text, 32, "%d:%02d", (int)minutes, (int)(whole % 60));
}

char *progress_line(const step_report *r, int64_t steps, double seconds_left) {
    char rate[32], left[32];
    format_thousands(r->tokens_per_second, rate);
    format_duration(seconds_left, left);
    return memory_format("step %lld/%lld  loss %.4f  norm %.2f  rate %.1e  %s tokens/s  time left %s",
                         (long long)r->step, (long long)steps, r->loss, r->gradient_norm, r->learning_rate, rate, left);
}

/* "[==>   ] " of `columns` characters. */
static char *draw_bar(int64_t step, int64_t steps, int columns) {
    int inside = columns - 3;
    int done = (int)((double)inside * (double)step / (double)steps);
    char *bar = memory_allocate((size_t)columns + 1, 1);
    memset(bar, ' ', (size_t)columns);
    bar[0] = '[';
    memset(bar + 1, '=', (size_t)done);
    if (done < inside)
        bar[1 + done] = '>';
    bar[columns - 2] = ']';
    return bar;
}

char *progress_bar(const step_report *r, int64_t steps, double seconds_left, int columns) {
    enum { NARROWEST = 10, WIDEST = 40 };
    char rate[32], left[32], mfu[32] = "";
    format_thousands(r->tokens_per_second, rate);
    format_duration(seconds_left, left);
    if (isfinite(r->mfu))
        snprintf(mfu, sizeof mfu, "  MFU %.1f%%", 100 * r->mfu);
    char *fields = memory_format("%lld/%lld  loss %.4f  %s tokens/s%s  time left %s", (long long)r->step,
                                 (long long)steps, r->loss, rate, mfu, left);
    int length = (int)strlen(fields), room = columns - 1 - length; /* the last column would wrap the line */
    if (room >= NARROWEST) {
        char *bar = draw_bar(r->step, steps, room < WIDEST ? room : WIDEST);
        char *whole = memory_format("%s%s", bar, fields);
        free(bar);
        free(fields);
        return whole;
    }
    if (room < 0)
        fields[columns > 1 ? columns - 1 : 0] = '\0';
    return fields;
}

progress *progress_create(FILE *out, int64_t first_step, int64_t steps, int64_t log_every) {
    progress *p = memory_allocate(1, sizeof *p);
    *p = (progress){.out = out,
                    .terminal = terminal_open(fileno(out)),
                    .first_step = first_step,
                    .steps = steps,
                    .log_every = log_every,
                    .started = now()};
    return p;
}

void progress_destroy(progress *p) {
    if (p == NULL)
        return;
    if (p->bar_shown)
        fputc('\n', p->out);
    fflush(p->out);
    if (p->terminal >= 0)
        close(p->terminal);
    free(p);
}

/* From the pace so far, validation and saving included. */
static double seconds_left(const progress *p, int64_t step) {
    int64_t done = step - p->first_step + 1;
    return (now() - p->started) / (double)done * (double)(p->steps - step);
}

static void draw(progress *p, const step_report *report) {
    static const double pause = 0.1; /* seconds; eyes need no more */
    bool last = report->step == p->steps;
    if (p->bar_shown && !last && now() - p->drawn < pause)
        return;
    char *text = progress_bar(report, p->steps, seconds_left(p, report->step), terminal_columns(p->terminal));
    fprintf(p->out, "\r%s\033[K", text);
    free(text);
    fflush(p->out);
    p->drawn = now();
    p->bar_shown = true;
}

/* Whether a line can be written without waiting. A reader that stands still (a paused pager, a launcher that counts
 * down to a kill) must not hold up all ranks; metrics.jsonl has what is left out here. */
static bool takes_output(FILE *out) {
    struct pollfd file = {.fd = fileno(out), .events = POLLOUT};
    return poll(&file, 1, 0) > 0;
}

void progress_step(progress *p, const step_report *report) {
    if (!takes_output(p->out))
        return;
    if (p->terminal >= 0) {
        draw(p, report);
        return;
    }
    if (report->step % p->log_every != 0 && report->step != p->steps && report->step != p->first_step)
        return;
    char *text = progress_line(report, p->steps, seconds_left(p, report->step));
    fprintf(p->out, "%s\n", text);
    free(text);
    fflush(p->out);
}

static void clear_bar(progress *p) {
    if (p->bar_shown)
        fputs("\r\033[K", p->out);
    p->bar_shown = false;
}

void progress_note(progress *p, const char *format, ...) {
    va_list arguments;
    if (!takes_output(p->out))
        return;
    clear_bar(p);
    va_start(arguments, format);
    vfprintf(p->out, format, arguments);
    va_end(arguments);
    fputc('\n', p->out);
    fflush(p->out);
}

void progress_warning(progress *p, const char *format, ...) {
    va_list arguments;
    if (!takes_output(stderr) || !takes_output(p->out))
        return;
    clear_bar(p);
    fflush(p->out);
    fputs("fsdp_train: warning: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}
