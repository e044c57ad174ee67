#include "launch/rank_table.h"

#include "engine/checked.h"
#include "launch/cores.h"
#include "launch/other_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct rank_row {
    char host[64], cores[128], device[96];
    long other_job; /* a rank of another job on cores that this one fills; 0: none */
    char common[64];
} rank_row;

/* Only threads that compute all the time fill a core: those of a rank on a GPU do not. */
static void find_other_job(world *w, const device *d, const binding *b, int threads, rank_row *row) {
    cpu_set_t common;
    row->other_job = other_job_find(w, &b->cores, &common);
    if (d->functions->queues || !binding_filled(b, threads))
        row->other_job = 0;
    if (row->other_job > 0)
        cores_format(&common, row->common, sizeof row->common);
}

static char *describe_crowd(const rank_row *rows, int ranks) {
    for (int rank = 0; rank < ranks; rank++)
        if (rows[rank].other_job > 0)
            return memory_format(
                "another job's process %ld may use the same cores (%s) of host %s, where rank %d has a thread for "
                "every core: both will be slow; give each job cores of its own (taskset, the batch system)",
                rows[rank].other_job, rows[rank].common, rows[rank].host, rank);
    return NULL;
}

void rank_table_print(world *w, const device *d, const binding *b, int threads, char **warning) {
    rank_row mine, *all = memory_allocate((size_t)w->size, sizeof *all);
    memset(&mine, 0, sizeof mine);
    snprintf(mine.host, sizeof mine.host, "%s", w->host);
    binding_describe(b, mine.cores, sizeof mine.cores);
    find_other_job(w, d, b, threads, &mine);
    snprintf(mine.device, sizeof mine.device, "%s", d->functions->describe(d));
    world_all_gather(w, &mine, sizeof mine, all);
    for (int rank = 0; rank < w->size && w->rank == 0; rank++)
        printf("rank %-4d    host %s, %s, %s\n", rank, all[rank].host, all[rank].cores, all[rank].device);
    *warning = describe_crowd(all, w->size);
    free(all);
}
