/* Runs a command and adds a line to a file when it has ended: its peak resident bytes (what the kernel calls VmHWM),
 * seconds from start to end, seconds in user and in kernel mode. For measuring the ranks of a job from outside:
 *
 *     mpirun -np 2 bench_peak FILE COMMAND [ARGUMENT ...]
 *
 * Ends as the command does. */
#include "bench/yardstick.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static double seconds_in(struct timeval t) {
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

static int append(const char *path, const struct rusage *used, double seconds) {
    FILE *file = fopen(path, "a");
    if (file == NULL) {
        perror(path);
        return 1;
    }
    fprintf(file, "%lld %.3f %.3f %.3f\n", (long long)used->ru_maxrss * 1024, seconds, seconds_in(used->ru_utime),
            seconds_in(used->ru_stime));
    return fclose(file) == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: bench_peak FILE COMMAND [ARGUMENT ...]\n");
        return 2;
    }
    const double started = seconds_now();
    const pid_t child = fork();
    if (child == 0) {
        execvp(argv[2], argv + 2);
        perror(argv[2]);
        _exit(127);
    }
    int status = 0;
    struct rusage used;
    if (child < 0 || wait4(child, &status, 0, &used) != child) {
        perror("bench_peak");
        return 1;
    }
    if (append(argv[1], &used, seconds_now() - started) != 0)
        return 1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
