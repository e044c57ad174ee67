/* Private to comm/: ranks as processes that an MPI launcher started. */
#ifndef FSDP_COMM_WORLD_MPI_H
#define FSDP_COMM_WORLD_MPI_H

#include "comm/world.h"

#include <mpi.h>

bool world_mpi_launched(void); /* as the launcher's environment says */
bool world_mpi_open(world *w, int *argc, char ***argv, error *e);

/* A communicator over all ranks for the caller's own messages, freed by the caller with MPI_Comm_free; false when the
 * ranks are not MPI processes. */
bool world_mpi_duplicate(const world *w, MPI_Comm *communicator);

#endif
