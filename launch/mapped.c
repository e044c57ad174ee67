#include "launch/mapped.h"

#include <setjmp.h>
#include <signal.h>
#include <string.h>

/* Where this thread goes on after a fault; NULL: it reads nothing that may fail. */
static _Thread_local sigjmp_buf *escape;

static void on_bus_error(int number) {
    if (escape != NULL)
        siglongjmp(*escape, 1);
    signal(number, SIG_DFL); /* not of our making: it faults again, and is reported as usual */
}

bool mapped_read(void (*read)(void *context), void *context) {
    struct sigaction action, before;
    sigjmp_buf here;
    volatile bool done = false;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_bus_error;
    sigaction(SIGBUS, &action, &before);
    escape = &here;
    if (sigsetjmp(here, 1) == 0) {
        read(context);
        done = true;
    }
    escape = NULL;
    sigaction(SIGBUS, &before, NULL);
    return done;
}
