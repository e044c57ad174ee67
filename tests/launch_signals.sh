#!/usr/bin/env bash
# Signals to a running job: SIGUSR1 saves and goes on, SIGTERM and SIGINT finish the step, save and end in order, at
# one rank and at several; a rank that is killed or stands still ends the job, not the patience. Argument: the build
# folder.
set -uo pipefail
set -m # a background job of a script ignores SIGINT otherwise
# shellcheck source=tests/support/launch.sh
source "$(dirname "$0")/support/launch.sh"

small_run 1000000

start() { # RANKS OVERRIDE ...: a run without end in the background, past its third step; its process is $job
    local ranks=$1 launcher=()
    shift
    rm -rf out
    [[ $ranks -eq 1 ]] || launcher=(mpirun -np "$ranks" --oversubscribe --bind-to none)
    "${launcher[@]}" "$programs/fsdp_train" config.ini output.folder=out "$@" > stdout 2> stderr < /dev/null &
    job=$!
    expect "$ranks ranks start" within 20 more_steps_than 3
    ranks_started=$job
    [[ $ranks -eq 1 ]] || ranks_started=$(ranks_of_job)
}

ranks_of_job() {
    cat "/proc/$job/task/$job/children"
}

gone() {
    ! kill -0 "$job" 2> /dev/null
}

rank_ended() { # PROCESS: gone, or waiting for its launcher to notice
    [[ ! -e /proc/$1/stat || $(sed 's/.*) //' "/proc/$1/stat" 2> /dev/null) == Z* ]]
}

ranks_ended() {
    local rank
    for rank in $ranks_started; do
        rank_ended "$rank" || return 1
    done
}

ended() { # EXIT CODE (or "any" that is not 0): within seconds
    local code=0
    within 60 ranks_ended || { kill -KILL "$job"; echo "still running"; return 1; }
    if ! within 20 gone; then # Open MPI 4.1.4 now and then locks up in its own shutdown; what counts are the ranks
        kill -KILL "$job"
        echo "the launcher stayed on after its ranks had ended"
        wait "$job"
        return 0
    fi
    wait "$job" || code=$?
    [[ $code == "$1" || ($1 == any && $code -ne 0) ]] || { echo "exit code $code, not $1"; return 1; }
}

end_event() { # REASON: the last line says it, once
    [[ $(tail -n 1 out/metrics.jsonl) == *'"reason":'*"\"$1\""* && $(grep -c '"event": *"end"' out/metrics.jsonl) -eq 1 ]]
}

differ() { # FILE FILE: steps lie between them
    ! cmp -s "$1" "$2"
}

loads() { # the saved model is complete: another run starts from it
    "$build/fsdp_train" config.ini model.from=out/model train.steps=1 output.folder=again > again.log 2>&1 ||
        { cat again.log; return 1; }
}

goes_on() { # where it was stopped
    local last
    last=$(tail -n 1 out/metrics.jsonl | grep -o '"step":[0-9]*')
    cp -r out more
    "$build/fsdp_train" config.ini output.folder=more "train.steps=$((${last#*:} + 1))" > again.log 2>&1 &&
        grep -q "\"event\":\"resume\",$last," more/metrics.jsonl || { cat again.log; return 1; }
    rm -r more
}

nothing_temporary() {
    [[ $(cd out && echo *) == "checkpoints metrics.jsonl model" && $(cd out/checkpoints && echo *) != *.* ]] || { ls out; return 1; }
}

saves_and_goes_on() { # RANKS
    start "$1"
    kill -USR1 "$job"
    expect "SIGUSR1 at $1 ranks saves" within 20 test -f out/model/model.safetensors
    expect "SIGUSR1 at $1 ranks goes on" within 20 more_steps_than $(($(steps) + 3))
    expect "what SIGUSR1 at $1 ranks saved loads" loads
    cp -r out/model first
}

stops_in_order() { # SIGNAL RANKS EXIT_CODE
    [[ -d first ]] || start "$2"
    kill "-$1" "$job"
    expect "SIG$1 at $2 ranks ends the job" ended "$3"
    expect "SIG$1 at $2 ranks: reason" end_event signal
    expect "SIG$1 at $2 ranks: the model loads" loads
    expect "SIG$1 at $2 ranks: a checkpoint to go on from" goes_on
    expect "SIG$1 at $2 ranks: nothing else is left" nothing_temporary
    if [[ -d first ]]; then
        expect "SIG$1 at $2 ranks saves again" differ {out,first}/model/model.safetensors
    fi
    rm -rf first
}

saves_and_goes_on 1
stops_in_order TERM 1 143
stops_in_order INT 1 130
saves_and_goes_on 3
stops_in_order TERM 3 any # the launcher's own code
stops_in_order INT 2 any

# A signal to one rank itself reaches all by the end of the step, without the launcher's waits.
start 3
kill -TERM "$(ranks_of_job | awk '{ print $3 }')"
expect "SIGTERM to one rank ends the job" ended any
expect "SIGTERM to one rank: reason" end_event signal
expect "SIGTERM to one rank: the model loads" loads

start 3
kill -KILL "$(ranks_of_job | awk '{ print $2 }')"
expect "a killed rank ends the job" ended any
expect "a killed rank leaves no model" test ! -e out/model

place='(in step [0-9]+, [a-z_]+ of .* of pass [0-9]+ \(.*\); missing ranks: |for the others at the end of step [0-9]+$)'
for transport in window messages; do
    start 3 shard.timeout=3 shard.transport=$transport
    kill -STOP "$(ranks_of_job | awk '{ print $2 }')"
    expect "a rank that stands still ends the job over $transport" ended 5
    expect "who is missing is said once over $transport" test \
        "$(grep -c '^fsdp_train: a collective .* timeout = 3 seconds; missing rank 1: stuck' stderr)" -eq 1
    # Where the others wait depends on where it was stopped: in a collective, or between steps.
    expect "who waits for it is said over $transport" grep -qE "^  ranks? .* waits $place" stderr
    expect "the rank that does not answer is named over $transport" grep -q '^  rank  1  *no answer; ' stderr
    expect "a rank that stands still leaves no model over $transport" test ! -e out/model
done

# On GPUs (simulated) a step is one piece of work; how far it has come is known all the same.
programs=$build/simulated
start 2 device.kind=cuda shard.timeout=3
kill -STOP "$(ranks_of_job | awk '{ print $2 }')"
expect "a rank that stands still ends the job on GPUs" ended 5
expect "who is missing is said on GPUs" grep -q '^fsdp_train: a collective .*; missing rank 1: stuck' stderr
expect "who waits for it is said on GPUs" grep -qE "^  rank  0 .* waits $place" stderr
expect "the rank that does not answer is named on GPUs" grep -q '^  rank  1  *no answer; ' stderr

# A rank that NCCL waits for at the start.
rm -rf out
export OMPI_MCA_odls_base_sigkill_timeout=0 # nothing to save: the launcher need not wait
SIMCUDA_NCCL_ABSENT=1 train 2 config.ini output.folder=out device.kind=cuda shard.timeout=1
expect "NCCL's start does not wait for ever" test $? -ne 0
expect 'and says so once' test "$(grep -c '^fsdp_train: .*NCCL has not connected its 2 ranks within \[shard\] timeout = 1 seconds' stderr)" = 1

# Another that stands still there: the lowest that answers says so, and who does not.
SIMCUDA_NCCL_ABSENT=1 mpirun -np 2 --oversubscribe --bind-to none "$programs/fsdp_train" config.ini output.folder=out \
    device.kind=cuda shard.timeout=2 > stdout 2> stderr < /dev/null &
job=$!
waits_in_nccl() { # rank 0 has opened the region where it meets rank 1
    ranks_started=$(ranks_of_job)
    region=$(grep -osm1 '/dev/shm/simcuda-nccl-[0-9a-f]*' "/proc/${ranks_started%% *}/maps")
}
expect "a rank comes to NCCL's start" within 20 waits_in_nccl
kill -STOP "${ranks_started%% *}"
expect "a rank that stands still in NCCL's start ends the job" ended 5
expect "which is said once" test \
    "$(grep -c '^fsdp_train: rank 1 .*NCCL has not connected its 2 ranks within \[shard\] timeout = 2 seconds.*; no answer from rank 0$' stderr)" = 1
rm -f "$region"
finish
