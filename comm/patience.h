/* Waiting for another rank without holding the core that it may need: spin briefly, then yield, then sleep in steps
 * that grow with the time already waited, so that sleeping adds little to any wait. */
#ifndef FSDP_COMM_PATIENCE_H
#define FSDP_COMM_PATIENCE_H

typedef struct patience {
    double begun;
    int rounds;
} patience;

double patience_clock(void); /* seconds, monotonic */
patience patience_begin(void);
/* Pauses once; returns the seconds since patience_begin. */
double patience_pause(patience *p);
void patience_sleep(double seconds);

#endif
