#include "comm/world_mpi.h"

#include "comm/patience.h"
#include "comm/world_state.h"
#include "engine/checked.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct mpi_state {
    world_state common;
    MPI_Comm communicator;
} mpi_state;

enum { TRANSFER_TAG = 1 };

/* One transfer moves at most this much: MPI counts in int. */
static const size_t PIECE_BYTES = (size_t)1 << 30;

static mpi_state *mpi_of(const world *w) {
    return (mpi_state *)w->state;
}

/* Open MPI's mpirun; PMIx launchers and Slurm's PMI plug-ins (srun --mpi=pmix, pmi2), MPICH's mpiexec. */
bool world_mpi_launched(void) {
    return getenv("OMPI_COMM_WORLD_SIZE") != NULL || getenv("PMIX_RANK") != NULL || getenv("PMI_RANK") != NULL ||
           getenv("SLURM_STEP_NUM_TASKS") != NULL;
}

/* Ranks that the launcher says it started; 0: it says nothing. */
static int launched_ranks(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]) != NULL)
            return atoi(getenv(names[i]));
    return 0;
}

/* MPI's blocking calls keep the core; testing and pausing lets go of it. */
static bool finish(const world *w, MPI_Request *request, double limit) {
    patience p = patience_begin();
    failure lost;
    double waited = 0;
    for (;;) {
        int done = 0;
        MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (done)
            return true;
        if ((limit >= 0 && waited > limit) || (limit > WITHOUT_LIMIT && world_lost(w, &lost)))
            return false;
        waited = patience_pause(&p);
    }
}

static bool mpi_barrier(world *w, double limit) {
    MPI_Request request;
    MPI_Ibarrier(mpi_of(w)->communicator, &request);
    return finish(w, &request, limit);
}

static bool mpi_broadcast(world *w, void *data, size_t bytes, int root, double limit) {
    MPI_Request request;
    for (size_t done = 0; done < bytes; done += PIECE_BYTES) {
        size_t piece = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
        MPI_Ibcast((char *)data + done, (int)piece, MPI_BYTE, root, mpi_of(w)->communicator, &request);
        if (!finish(w, &request, limit))
            return false;
    }
    return true;
}

static bool mpi_all_gather(world *w, const void *mine, size_t bytes, void *all, double limit) {
    check(bytes <= INT_MAX, "%zu bytes are too many for one exchange", bytes);
    MPI_Request request;
    MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, mpi_of(w)->communicator, &request);
    return finish(w, &request, limit);
}

static void mpi_send(world *w, const void *data, size_t bytes, int to) {
    MPI_Request request;
    for (size_t done = 0; done < bytes; done += PIECE_BYTES) {
        size_t piece = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
        MPI_Isend((const char *)data + done, (int)piece, MPI_BYTE, to, TRANSFER_TAG, mpi_of(w)->communicator, &request);
        finish(w, &request, WITHOUT_LIMIT);
    }
}

static void mpi_receive(world *w, void *data, size_t bytes, int from) {
    MPI_Request request;
    for (size_t done = 0; done < bytes; done += PIECE_BYTES) {
        size_t piece = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
        MPI_Irecv((char *)data + done, (int)piece, MPI_BYTE, from, TRANSFER_TAG, mpi_of(w)->communicator, &request);
        finish(w, &request, WITHOUT_LIMIT);
    }
}

static void mpi_close(world *w) {
    mpi_state *state = mpi_of(w);
    /* A rank that is lost never comes to MPI_Finalize; only the launcher can end it. It is told once: from then on it
     * may keep those that tell it again waiting. */
    if (state->common.broken && world_speaks(w))
        MPI_Abort(MPI_COMM_WORLD, state->common.code);
    if (state->common.broken)
        _exit(state->common.code);
    MPI_Comm_free(&state->communicator);
    world_state_free(w);
    MPI_Finalize();
}

static const world_functions mpi_functions = {.barrier = mpi_barrier,
                                              .broadcast = mpi_broadcast,
                                              .all_gather = mpi_all_gather,
                                              .send = mpi_send,
                                              .receive = mpi_receive,
                                              .close = mpi_close};

/* The lowest rank of this rank's node, which all ranks of the node have in common. */
static int lowest_of_node(int rank) {
    MPI_Comm node;
    int lowest = rank;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    MPI_Bcast(&lowest, 1, MPI_INT, 0, node);
    MPI_Comm_free(&node);
    return lowest;
}

bool world_mpi_open(world *w, int *argc, char ***argv, error *e) {
    int provided = 0, rank = 0, size = 0;
    MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (launched_ranks() > size) {
        MPI_Finalize();
        *w = world_imagined(1);
        return error_set(
            e, EXIT_LAUNCH,
            "the launcher started %d ranks, but MPI sees %d: the launcher does not belong to the MPI library "
            "that this program was built with; use that library's mpirun, or srun --mpi=pmix",
            launched_ranks(), size);
    }
    check(provided >= MPI_THREAD_FUNNELED, "MPI offers thread level %d only", provided);
    mpi_state *state = memory_allocate(1, sizeof *state);
    state->common.functions = &mpi_functions;
    int *lowest = memory_allocate((size_t)size, sizeof *lowest), mine = lowest_of_node(rank);
    MPI_Allgather(&mine, 1, MPI_INT, lowest, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Comm_dup(MPI_COMM_WORLD, &state->communicator);
    world_state_place(w, &state->common, rank, size, lowest);
    free(lowest);
    return true;
}

bool world_mpi_duplicate(const world *w, MPI_Comm *communicator) {
    if (w->state->functions != &mpi_functions)
        return false;
    MPI_Comm_dup(mpi_of(w)->communicator, communicator);
    return true;
}
