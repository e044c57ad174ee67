#include "launch/scaling_launch.h"

#include "engine/checked.h"
#include "launch/words.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---- the command ---- */

/* fsdp_train in the folder of this program. */
static char *training_program(void) {
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    check(length > 0, "/proc/self/exe cannot be read: %s", strerror(errno));
    path[length] = '\0';
    *strrchr(path, '/') = '\0';
    return memory_format("%s/fsdp_train", path);
}

static char *run_folder(const scaling_launch *l) {
    return memory_format("%s/run", l->folder);
}

/* Whether both words set the same key. */
static bool same_key(const char *a, const char *b) {
    const size_t length = strcspn(a, "=");
    return length == strcspn(b, "=") && strncmp(a, b, length) == 0;
}

/* What a measurement needs. */
static void add_own_overrides(words *w, const scaling_launch *l) {
    char *folder = run_folder(l);
    words_add(w, memory_format("train.global_batch=%lld", (long long)l->global_batch));
    words_add(w, memory_format("train.steps=%d", l->steps));
    words_add_copy(w, "train.validate_every=0");
    words_add_copy(w, "train.validation_batches=1");
    words_add_copy(w, "output.checkpoint_every=0");
    words_add_copy(w, "output.resume=no");
    words_add(w, memory_format("output.folder=\"%s\"", folder));
    words_add(w, memory_format("output.trace=%s", l->traced ? "yes" : "no"));
    if (l->traced)
        words_add(w, memory_format("output.trace_steps=%d %d", l->skipped + 1, l->steps));
    free(folder);
}

static void add_training(words *w, const scaling_launch *l) {
    words_add(w, training_program());
    words_add_copy(w, l->config);
    const size_t first = w->count;
    add_own_overrides(w, l);
    const size_t end = w->count;
    for (int i = 0; i < l->override_count; i++) {
        bool replaced = false;
        for (size_t own = first; own < end; own++)
            replaced |= same_key(w->items[own], l->overrides[i]);
        if (!replaced)
            words_add_copy(w, l->overrides[i]);
    }
}

/* ---- processes ---- */

/* Runs the command with standard error in a file and the rest closed. Exit code; -1: it cannot be started (errno). */
static int run_command(const words *w, FILE *complaints) {
    posix_spawn_file_actions_t files;
    pid_t process;
    int status = 0;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&files, fileno(complaints), STDERR_FILENO);
    const int failure = posix_spawnp(&process, w->items[0], &files, NULL, w->items, environ);
    posix_spawn_file_actions_destroy(&files);
    if (failure != 0) {
        errno = failure;
        return -1;
    }
    while (waitpid(process, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void pass_on(FILE *complaints) {
    char block[4096];
    size_t length;
    rewind(complaints);
    while ((length = fread(block, 1, sizeof block, complaints)) > 0)
        fwrite(block, 1, length, stderr);
}

static bool not_started(const words *w, error *e) {
    if (errno != ENOENT)
        return error_set(e, EXIT_LAUNCH, "%s: cannot start: %s", w->items[0], strerror(errno));
    return error_set(e, EXIT_LAUNCH,
                     "%s: not found; install Open MPI (Debian package openmpi-bin), or name what starts ranks with "
                     "--launcher",
                     w->items[0]);
}

static bool command_succeeds(const words *w, const scaling_launch *l, error *e) {
    FILE *complaints = tmpfile();
    check(complaints != NULL, "no temporary file: %s", strerror(errno));
    const int code = run_command(w, complaints);
    bool good = code == 0;
    if (code < 0) {
        not_started(w, e);
    } else if (!good) {
        pass_on(complaints);
        const bool of_training = code >= EXIT_INTERNAL && code <= EXIT_LAUNCH;
        error_set(e, of_training ? code : EXIT_LAUNCH, "%d rank%s: %s ended with %d; its words are above", l->ranks,
                  l->ranks == 1 ? "" : "s", w->items[0], code);
    }
    fclose(complaints);
    return good;
}

/* ---- the folder of a run, which may hold a large model ---- */

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place) {
    (void)status, (void)kind, (void)place;
    return remove(path);
}

static void remove_folder(const char *folder) {
    enum { OPEN_AT_ONCE = 16 };
    nftw(folder, remove_one, OPEN_AT_ONCE, FTW_DEPTH | FTW_PHYS);
}

static bool keep_metrics(const char *folder, const char *metrics, error *e) {
    char *made = memory_format("%s/metrics.jsonl", folder);
    const bool good = rename(made, metrics) == 0;
    if (!good)
        error_set(e, EXIT_USAGE, "%s: cannot rename to %s: %s", made, metrics, strerror(errno));
    free(made);
    return good;
}

bool scaling_launch_check(const scaling_launch *l, error *e) {
    words w = {0};
    add_training(&w, l);
    words_add_copy(&w, "--plan");
    words_add_copy(&w, "--ranks");
    words_add(&w, memory_format("%d", l->ranks));
    const bool good = command_succeeds(&w, l, e);
    words_free(&w);
    return good;
}

bool scaling_launch_run(const scaling_launch *l, const char *metrics, error *e) {
    words w = {0};
    char *folder = run_folder(l);
    words_add_split(&w, l->launcher, " \t");
    words_add_copy(&w, "-n");
    words_add(&w, memory_format("%d", l->ranks));
    add_training(&w, l);
    remove_folder(folder);
    const bool good = command_succeeds(&w, l, e) && keep_metrics(folder, metrics, e);
    remove_folder(folder);
    free(folder);
    words_free(&w);
    return good;
}
