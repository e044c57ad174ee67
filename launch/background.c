#include "launch/background.h"

#include "engine/checked.h"
#include "engine/device/thread.h"

#include <stdlib.h>
#include <string.h>

struct background {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t news;
    background_work *work; /* NULL: nothing is under way */
    void *context;
    bool closing;
};

static void *background_main(void *argument) {
    background *b = argument;
    pthread_mutex_lock(&b->lock);
    for (;;) {
        while (b->work == NULL && !b->closing)
            pthread_cond_wait(&b->news, &b->lock);
        if (b->work == NULL)
            break;
        pthread_mutex_unlock(&b->lock);
        b->work(b->context);
        pthread_mutex_lock(&b->lock);
        b->work = NULL;
        pthread_cond_broadcast(&b->news);
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

static void release(background *b) {
    pthread_cond_destroy(&b->news);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

bool background_open(background **opened, error *e) {
    background *b = memory_allocate(1, sizeof *b);
    check(pthread_mutex_init(&b->lock, NULL) == 0 && pthread_cond_init(&b->news, NULL) == 0, "no lock for a thread");
    const int reason = thread_create(&b->thread, background_main, b);
    if (reason != 0) {
        release(b);
        return error_set_own(e, EXIT_LAUNCH,
                             "cannot start the thread that writes checkpoints: %s; allow this user more processes, or "
                             "set [output] checkpoint_background = no",
                             strerror(reason));
    }
    *opened = b;
    return true;
}

void background_close(background *b) {
    if (b == NULL)
        return;
    pthread_mutex_lock(&b->lock);
    b->closing = true;
    pthread_cond_broadcast(&b->news);
    pthread_mutex_unlock(&b->lock);
    pthread_join(b->thread, NULL);
    release(b);
}

void background_start(background *b, background_work *work, void *context) {
    pthread_mutex_lock(&b->lock);
    check(b->work == NULL, "the thread has work already");
    b->work = work;
    b->context = context;
    pthread_cond_broadcast(&b->news);
    pthread_mutex_unlock(&b->lock);
}

bool background_idle(background *b) {
    pthread_mutex_lock(&b->lock);
    const bool idle = b->work == NULL;
    pthread_mutex_unlock(&b->lock);
    return idle;
}

void background_wait(background *b) {
    pthread_mutex_lock(&b->lock);
    while (b->work != NULL)
        pthread_cond_wait(&b->news, &b->lock);
    pthread_mutex_unlock(&b->lock);
}
