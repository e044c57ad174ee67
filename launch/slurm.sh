#!/usr/bin/env bash
#SBATCH --job-name=fsdp_train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=16
#SBATCH --time=12:00:00
#SBATCH --signal=TERM@300
#SBATCH --requeue
#SBATCH --open-mode=append
# An example of a job that outlives its time limit: five minutes before it Slurm sends SIGTERM to the ranks, which finish
# the step, write a checkpoint and end; the job puts itself in the queue again and goes on from there. With
# [output] checkpoint_every it also outlives a crash. Start: sbatch launch/slurm.sh my.ini [section.key=value ...]
set -uo pipefail

code=0
srun --mpi=pmix build/fsdp_train "$@" || code=$?
if [[ $code -eq 143 ]]; then # ended in order by SIGTERM
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
