#include "launch/signals.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

/* What a handler may touch; the one place in the program where a global variable cannot be avoided. */
static volatile sig_atomic_t end_signal, save_wanted;

static void on_end(int number) {
    if (end_signal != 0)
        _exit(128 + number);
    end_signal = number;
}

static void on_save(int number) {
    (void)number;
    save_wanted = 1;
}

static void install(int number, void (*handler)(int), int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(number, &action, NULL);
}

void signals_install(void) {
    /* No restart: a launcher that is about to kill its ranks reads no more of their output, so that a rank may hang in
     * a write when it is told to end, and must get out of it. */
    install(SIGINT, on_end, 0);
    install(SIGTERM, on_end, 0);
    install(SIGUSR1, on_save, SA_RESTART);
    install(SIGXFSZ, SIG_IGN, 0); /* a file beyond the size limit is a failed write like another */
}

int signals_end(void) {
    return (int)end_signal;
}

bool signals_take_save(void) {
    const bool wanted = save_wanted != 0;
    save_wanted = 0;
    return wanted;
}
