/* Threads beside those that compute. */
#ifndef FSDP_ENGINE_DEVICE_THREAD_H
#define FSDP_ENGINE_DEVICE_THREAD_H

#include <pthread.h>

/* As pthread_create with default attributes, but the thread receives no signals, so that they interrupt the main
 * thread. Returns 0 or what errno would be. */
int thread_create(pthread_t *thread, void *(*start)(void *), void *argument);

#endif
