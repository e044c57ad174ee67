#!/usr/bin/env bash
# Nothing that goes wrong while a checkpoint is written costs more than that checkpoint: every file operation of it fails
# in turn, every one is killed in turn, ranks are killed at random moments, a file may not grow, the folder may not be
# written; then the run goes on to the bits of an undisturbed one. And one run at a time has a folder. Argument: the
# build folder.
set -uo pipefail
# shellcheck source=tests/support/launch.sh
source "$(dirname "$0")/support/launch.sh"
export OMPI_MCA_odls_base_sigkill_timeout=0

"$build/tool_tokens" tokens.bin 97 3000 tokens16
cat > config.ini << 'END'
[model]
family = llama
layers = 1
width = 8
heads = 2
vocabulary = 97
context = 16
[data]
train = tokens.bin
format = tokens16
[train]
steps = 4
global_batch = 4
[shard]
reduce = reproducible
[device]
kind = cpu
threads = 1
[output]
checkpoint_every = 2
END

steps_of() {
    (cd out/checkpoints && echo *)
}

same_model() { # FOLDER: as out/
    cmp "$1/model/model.safetensors" out/model/model.safetensors
}

said() { # PATTERN: on standard error
    grep -qE "$1" stderr
}

with_fault() { # RANK NUMBER COMMAND ...: that operation on checkpoints fails
    rm -f report
    FAULT_PATH=/checkpoints FAULT_RANK=$1 FAULT_NUMBER=$2 FAULT_REPORT=$PWD/report \
        LD_PRELOAD=$build/libpreload_faults.so "${@:3}"
}

last_step() {
    grep -o '"event":"step","step":[0-9]*' out/metrics.jsonl 2> /dev/null | tail -n 1 | grep -o '[0-9]*$' || echo 0
}

# Every operation fails once
train 2 config.ini output.folder=straight
expect "an undisturbed run" test $? -eq 0
faults=0
for rank in 0 1; do
    for ((number = 1; ; number++)); do
        rm -rf out
        with_fault $rank $number train 2 config.ini output.folder=out
        code=$?
        [[ -e report ]] || break
        faults=$((faults + 1))
        what="rank $rank, operation $number, $(< report)"
        expect "$what: goes on" test $code -eq 0
        expect "$what: same model" same_model straight
        if [[ $(< report) != "close "*/step-*.incomplete && $(< report) != "close "*/checkpoints ]]; then # of a folder
            expect "$what: said" said "^fsdp_train: warning: no checkpoint of step [24]: rank $rank \([^)]*\): out/checkpoints.*: Input/output error"
            expect "$what: the other stands alone" test "$(steps_of)" = step-00000002 -o "$(steps_of)" = step-00000004
        fi
        train 1 config.ini output.folder=out
        expect "$what: what is there is whole" test "$(grep -c 'passed over' stderr)" -eq 0
    done
done
expect "faults at both ranks" test $faults -ge 16
expect "a rank with fewer operations than faults ran undisturbed" test $code -eq 0

rm -rf out
with_fault 1 2 train 2 config.ini output.folder=out output.checkpoint_failure=stop
expect "checkpoint_failure = stop ends the run" test $? -ne 0
expect "and says why" said '^fsdp_train: no checkpoint of step 2: rank 1 \([^)]*\): out/checkpoints/step-00000002.incomplete/shard-00001.bin: cannot write: Input/output error'

# A file that may not grow, a folder that may not be written
rm -rf out
mpirun -np 2 --oversubscribe --bind-to none "$build/fsdp_train" config.ini output.folder=out train.steps=1000000 \
    output.checkpoint_every=50 > stdout 2> stderr < /dev/null &
job=$!
until grep -qs '"checkpoint"' out/metrics.jsonl; do sleep 0.02; done
prlimit --pid "$(awk '{ print $2 }' "/proc/$job/task/$job/children")" --fsize=1000
for ((wait = 0; wait < 200; wait++)); do
    grep -qs 'no checkpoint' stderr && break
    sleep 0.05
done
steps=$(last_step)
sleep 0.3
expect "a limit on a rank's files is a failed write" said \
    'no checkpoint of step [0-9]*: rank 1 \([^)]*\): out/checkpoints/step-.*.incomplete/shard-00001.bin: cannot write: File too large'
expect "which the run survives" test "$(last_step)" -gt "$steps"
expect "and does not forget" grep -q 'warning: no checkpoint since step ' stdout
expect "earlier ones stand" test -e out/checkpoints/step-00000050/manifest.json
kill -KILL "$(awk '{ print $1 }' "/proc/$job/task/$job/children")"
wait $job 2> /dev/null
rm -rf out
mkdir out
touch out/checkpoints
train 2 config.ini output.folder=out output.resume=no
expect "a file in the way" said 'out/checkpoints: cannot open: Not a directory'

# Killed at every operation, by turns rank 0 and 1, and at random moments, one rank or all; each goes on from the last
resumed_step() {
    grep -o '"event":"resume","step":[0-9]*' out/metrics.jsonl | tail -n 1 | grep -o '[0-9]*$' || echo 0
}

resumed() { # how often
    grep -cs '"event":"resume"' out/metrics.jsonl
}

train 2 config.ini output.folder=long train.steps=3000 output.checkpoint_every=5
rm -rf out
before=0
times=0
check_loss() { # WHAT: since the last call the run may have got as far as going on
    if [[ $(resumed) -gt $times ]]; then
        expect "$1: at most one interval is lost" test $((before - $(resumed_step))) -le 5
        expect "$1: no torn checkpoint has a name" test "$(grep -c 'passed over' stderr)" -eq 0
    fi
    before=$(last_step)
    times=$(resumed)
}
run_long() {
    train 2 config.ini output.folder=out train.steps=3000 output.checkpoint_every=5
}
for ((number = 1; number <= 18; number++)); do
    FAULT_KILL=1 with_fault $((number % 2)) $number run_long
    expect "operation $number is killed" test -s report
    check_loss "killed at operation $number"
done
RANDOM=7
for ((number = 1; number <= 8; number++)); do
    mpirun -np 2 --oversubscribe --bind-to none "$build/fsdp_train" config.ini output.folder=out train.steps=3000 \
        output.checkpoint_every=5 > stdout 2> stderr < /dev/null &
    job=$!
    sleep "0.$((RANDOM % 4 + 2))$((RANDOM % 10))"
    read -ra ranks < "/proc/$job/task/$job/children"
    if [[ $((number % 2)) -eq 0 && ${#ranks[@]} -eq 2 ]]; then
        kill -KILL "${ranks[$((RANDOM % 2))]}"
    else
        kill -KILL "${ranks[@]}" 2> /dev/null
    fi
    wait $job 2> /dev/null
    check_loss "killed at random, $number"
done
expect "the kills came before the end" test "$before" -gt 100 -a "$before" -lt 3000
run_long
expect "goes on to the end" test $? -eq 0
check_loss "the last start"
expect "to the bits of the undisturbed run" same_model long

# One run at a time
rm -rf out
"$build/fsdp_train" config.ini output.folder=out train.steps=1000000 > first.log 2>&1 &
job=$!
until grep -qs '"step"' out/metrics.jsonl; do sleep 0.02; done
train 2 config.ini output.folder=out
expect "a second run is refused" said "\[output\] folder = out: another run writes there: process $job on host $(hostname), started "
kill -KILL $job
wait $job 2> /dev/null
train 1 config.ini output.folder=out train.steps=1000001 output.checkpoint_every=1000000 &
until [[ $(grep -cs '"start"' out/metrics.jsonl) -eq 2 ]] || ! kill -0 $!; do sleep 0.02; done
expect "a dead run's lock is taken over" kill -0 $!
pkill -KILL -P $!
wait $! 2> /dev/null
finish
