#include "launch/terminal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

static int width(int file) {
    struct winsize size;
    return ioctl(file, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* From /proc/PID/stat: "PID (name) state parent ...", where the name may hold anything. 0: unknown. */
static int parent_of(int process) {
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    FILE *input = fopen(path, "r");
    if (input == NULL)
        return 0;
    size_t length = fread(text, 1, sizeof text - 1, input);
    fclose(input);
    text[length] = '\0';
    const char *behind_name = strrchr(text, ')');
    int parent = 0;
    return behind_name != NULL && sscanf(behind_name + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

static bool same_file(int a, int b) {
    struct stat of_a, of_b;
    return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

/* The standard output of the nearest ancestor whose output is not ours; -1: none that can be seen. */
static int launcher_output(int output) {
    for (int process = getppid(); process > 1; process = parent_of(process)) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/fd/1", process);
        int file = open(path, O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
        if (file < 0)
            return -1;
        if (!same_file(file, output))
            return file;
        close(file);
    }
    return -1;
}

int terminal_open(int output) {
    if (!isatty(output))
        return -1;
    if (width(output) > 0)
        return fcntl(output, F_DUPFD_CLOEXEC, 0);
    int file = launcher_output(output);
    if (file < 0 || isatty(file))
        return file;
    close(file);
    return -1;
}

int terminal_columns(int terminal) {
    int columns = width(terminal);
    return columns > 0 ? columns : 80;
}
