#!/usr/bin/env bash
#SBATCH --job-name=fsdp_train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=16
#SBATCH --time=12:00:00
#SBATCH --signal=B:TERM@300
#SBATCH --requeue
#SBATCH --open-mode=append
# As launch/slurm.sh, with mpirun, which learns from Slurm which nodes and how many ranks it may use: for an Open MPI that
# srun cannot start ranks for (srun --mpi=list has no pmix). Slurm signals this script, which passes it on. Start:
# sbatch launch/slurm_mpirun.sh my.ini [section.key=value ...]
set -uo pipefail

# After SIGTERM mpirun waits this many seconds before it tells the ranks, and as long again before it kills them.
export OMPI_MCA_odls_base_sigkill_timeout=${OMPI_MCA_odls_base_sigkill_timeout:-120}

stopped=no code=0
mpirun build/fsdp_train "$@" &
job=$!
trap 'stopped=yes; kill -TERM "$job"' TERM
wait "$job" || code=$?
if [[ $stopped == yes ]]; then
    wait "$job" || code=$? # the signal has cut the first wait short
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
