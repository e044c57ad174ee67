/* A real device works while the host does something else. Here queued work runs inside the host's CUDA calls; when the
 * host makes none for a while (it waits for another process, which may wait for this one's queued collectives), a
 * thread of the simulator runs it. Not inside simcuda_catch. What that work touches is never destroyed, since the
 * process may end meanwhile. */
#ifndef SIMCUDA_PROGRESS_H
#define SIMCUDA_PROGRESS_H

namespace simcuda {

/* Starts the thread unless it runs. */
void progress_start();

} // namespace simcuda

#endif
