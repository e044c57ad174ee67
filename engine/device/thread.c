#include "engine/device/thread.h"

#include <signal.h>
#include <stddef.h>

/* A thread begins with the signal mask of the one that makes it. */
int thread_create(pthread_t *thread, void *(*start)(void *), void *argument) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int reason = pthread_create(thread, NULL, start, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return reason;
}
