/* Reading files that are mapped into memory. A page that cannot be had, because the file was cut off or its disk fails,
 * arrives as a signal; here it becomes a result. */
#ifndef FSDP_LAUNCH_MAPPED_H
#define FSDP_LAUNCH_MAPPED_H

#include <stdbool.h>

/* Calls read(context), which reads mapped files and takes nothing that it would have to give back. False: a page could
 * not be had, and read was left at that point. Only the calling thread's reads are covered. */
bool mapped_read(void (*read)(void *context), void *context);

#endif
