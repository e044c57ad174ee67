# shellcheck shell=bash disable=SC2034
# Sourced by launch_*.sh: a scratch folder to work in, and fsdp_train on any number of ranks.
#
#   train RANKS ARGUMENT ...     runs it; standard output and error go to ./stdout and ./stderr; returns its exit code
#   small_run STEPS              writes config.ini, a small Llama at one thread per rank, and its tokens
#   within SECONDS CONDITION ... true as soon as the condition is
#   more_steps_than NUMBER       whether the run in ./out has done more; `steps` prints how many it has
#   expect WHAT COMMAND ...      counts a failure, with the last run's output, unless COMMAND succeeds
#   finish                       ends the test

build=$(realpath "$1")
programs=$build # where fsdp_train is that `train` starts
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit
failures=0

# Open MPI refuses root unless told twice. After SIGINT or SIGTERM it waits this many seconds, sends SIGTERM to the
# ranks, waits as long again and kills them, whether or not they have ended before.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_odls_base_sigkill_timeout=5

train() {
    local ranks=$1 launcher=()
    shift
    if [[ $ranks -gt 1 ]]; then
        launcher=(mpirun -np "$ranks" --oversubscribe --bind-to none)
    fi
    timeout "${patience:-120}" "${launcher[@]}" "$programs/fsdp_train" "$@" > stdout 2> stderr < /dev/null
}

small_run() { # STEPS
    "$build/tool_tokens" tokens.bin 97 100000 tokens16
    cat > config.ini << END
[model]
family = llama
layers = 2
width = 32
heads = 2
vocabulary = 97
context = 32
[data]
train = tokens.bin
format = tokens16
[train]
steps = $1
global_batch = 12
[device]
kind = cpu
threads = 1
END
}

within() { # SECONDS CONDITION ...
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [[ $SECONDS -lt $end ]] || return 1
        sleep 0.05
    done
}

steps() {
    grep -cs '"event": *"step"' out/metrics.jsonl
}

more_steps_than() {
    [[ $(steps) -gt $1 ]]
}

expect() {
    local what=$1
    shift
    if ! "$@"; then
        failures=$((failures + 1))
        echo "FAILED: $what"
        tail -n 20 stdout stderr
    fi
}

finish() {
    echo "$failures failures in $SECONDS s"
    [[ $failures -eq 0 ]]
    exit
}
