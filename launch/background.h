/* A thread beside the main one that does one piece of work at a time. It receives no signals, so that they interrupt
 * the main thread, and must not call the world (comm/world.h). */
#ifndef FSDP_LAUNCH_BACKGROUND_H
#define FSDP_LAUNCH_BACKGROUND_H

#include "engine/error.h"

typedef struct background background;

typedef void background_work(void *context);

/* EXIT_LAUNCH when the system gives no thread. */
bool background_open(background **opened, error *e);

/* Waits for what is under way. NULL is fine. */
void background_close(background *b);

/* Nothing may be under way. */
void background_start(background *b, background_work *work, void *context);

/* Whether nothing is under way; what the work wrote can then be read. */
bool background_idle(background *b);
void background_wait(background *b);

#endif
