#!/usr/bin/env bash
# Nothing that goes wrong while a checkpoint is written costs more than that checkpoint: every file operation of it fails
# in turn, a file may not grow, the folder may not be written; then the run goes on to the bits of an undisturbed one.
# And one run at a time has a folder. Argument: the build folder.
set -uo pipefail
# shellcheck source=tests/support/launch.sh
source "$(dirname "$0")/support/launch.sh"
# shellcheck source=tests/support/checkpoints.sh
source "$tests/support/checkpoints.sh"
tiny_run 4 2

steps_of() {
    (cd out/checkpoints && echo *)
}

same_model() { # FOLDER: as out/
    cmp "$1/model/model.safetensors" out/model/model.safetensors
}

said() { # PATTERN: on standard error
    grep -qE "$1" stderr
}

# Every operation fails once
train 2 config.ini output.folder=straight
expect "an undisturbed run" test $? -eq 0
faults=0
for rank in 0 1; do
    for ((number = 1; ; number++)); do
        rm -rf out
        with_fault $rank $number train 2 config.ini
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
        train 1 config.ini
        expect "$what: what is there is whole" test "$(grep -c 'passed over' stderr)" -eq 0
    done
done
expect "faults at both ranks" test $faults -ge 16
expect "a rank with fewer operations than faults ran undisturbed" test $code -eq 0

rm -rf out
with_fault 1 2 train 2 config.ini output.checkpoint_failure=stop
expect "checkpoint_failure = stop ends the run" test $? -ne 0
expect "and says why" said '^fsdp_train: no checkpoint of step 2: rank 1 \([^)]*\): out/checkpoints/step-00000002.incomplete/shard-00001.bin: cannot write: Input/output error'

# A line of the log that cannot be written ends the run, in order: only rank 0 writes it, and only rank 0 knows
lines=0
for background in yes no; do
    for ((number = 1; ; number++)); do
        rm -rf out
        FAULT_PATH=/metrics.jsonl patience=30 with_fault 0 $number train 2 config.ini \
            output.checkpoint_background=$background train.steps=3
        code=$?
        [[ -e report && $(< report) != close* ]] || break
        lines=$((lines + 1))
        what="background $background, line $number"
        if ! said 'the log has no end event$'; then # the last line of a run that is done, whichever number it has
            expect "$what: ends the run" test $code -ne 0 -a $code -ne 124
        fi
        expect "$what: is said" said '^fsdp_train: .*out/metrics.jsonl: cannot (open for writing|write): Input/output error'
        train 2 config.ini train.steps=3
        expect "$what: the run goes on" test $? -eq 0
        expect "$what: what is there is whole" test "$(grep -c 'passed over' stderr)" -eq 0
    done
done
expect "lines of all kinds" test $lines -ge 16

# A file that may not grow, a folder that may not be written
rm -rf out
start 2 train.steps=1000000 output.checkpoint_every=50
until grep -qs '"checkpoint"' out/metrics.jsonl; do sleep 0.02; done
prlimit --pid "$(ranks_of $job | cut -d ' ' -f 2)" --fsize=1000
for ((wait = 0; wait < 200; wait++)); do
    grep -qs 'no checkpoint' stderr && break
    sleep 0.05
done
steps=$(last step)
sleep 0.3
expect "a limit on a rank's files is a failed write" said \
    'no checkpoint of step [0-9]*: rank 1 \([^)]*\): out/checkpoints/step-.*.incomplete/shard-00001.bin: cannot write: File too large'
expect "which the run survives" test "$(last step)" -gt "$steps"
expect "and does not forget" grep -q 'warning: no checkpoint since step ' stdout
expect "earlier ones stand" compgen -G 'out/checkpoints/step-*[0-9]/manifest.json'
kill -KILL "$(ranks_of $job | cut -d ' ' -f 1)"
wait $job 2> /dev/null

# A full disk: room for one checkpoint and part of the next
on_a_small_disk() { # COMMAND ...: with a file system of its own, of BLOCKS blocks of 4 KB, at out/checkpoints
    rm -rf out
    mkdir -p out/checkpoints
    # shellcheck disable=SC2016 # expanded in the inner shell
    unshare --mount -- bash -c 'mount -t tmpfs -o size=$(('"$blocks"' * 4096)) tmpfs out/checkpoints && "$@" &&
        (cd out/checkpoints && echo * > ../left)' - "$@"
}
blocks=100
if unshare --mount -- mount -t tmpfs tmpfs out 2> refusal; then
    export -f train
    export build programs
    rm -rf out
    "$build/fsdp_train" config.ini output.folder=whole > /dev/null
    blocks=$(($(du -s --block-size=4096 whole/checkpoints/step-00000002 | cut -f 1) * 3 / 2))
    expect "a run on a full disk goes on" on_a_small_disk bash -c 'train 2 config.ini'
    expect "and says so" said '^fsdp_train: warning: no checkpoint of step 4: rank [01] \([^)]*\): out/checkpoints.*: No space left on device'
    expect "the older checkpoint stands alone" test "$(< out/left)" = step-00000002
    expect "and the model is that of an undisturbed run" same_model straight
else
    echo "A full disk is not tried, since mounting is not permitted here: $(< refusal)"
fi

rm -rf out
mkdir out
touch out/checkpoints
train 2 config.ini output.resume=no
expect "a file in the way" said 'out/checkpoints: cannot open: Not a directory'

# In the background: rank 0's thread sleeps at the fourth operation, in the file of the checkpoint of step 50
slowly() { # a long run in the background, past step 60 while that is written; it is $job
    rm -rf out
    FAULT_SLEEP=2 with_fault 0 4 start 1 train.steps=20000 output.checkpoint_every=50 output.keep=1000
    until [[ $(last step) -ge 60 ]] || ! kill -0 $job; do sleep 0.01; done
    expect "training goes on while a checkpoint is written" test -e report -a ! -e out/checkpoints/step-00000050
}
number_of() { # LINE: its place in metrics.jsonl
    grep -n "\"event\":$1" out/metrics.jsonl | head -n 1 | cut -d : -f 1
}
slowly
until grep -q '"event":"step","step":101,' out/metrics.jsonl || ! kill -0 $job; do sleep 0.02; done
expect "a second checkpoint waits for the first" test "$(number_of '"checkpoint","step":50,')" -lt "$(number_of '"step","step":101,')"
expect "which is of the step that it was begun at" is_whole out/checkpoints/step-00000050
expect "training stood still for a part of the time" awk -F '[:,}]' '/"event":"checkpoint","step":50,/ {
    exit !($6 > 1.9 && $8 < $6 && $8 > 0) }' out/metrics.jsonl
kill -KILL $job
wait $job 2> /dev/null
slowly
kill -TERM $job
wait $job
expect "a signal to end: code" test $? -eq 143
expect "a signal to end waits for what is being written" is_whole out/checkpoints/step-00000050
expect "and writes one more" is_whole "out/checkpoints/step-$(printf %08d "$(last step)")"
slowly
kill -TERM $job
sleep 0.3
kill -TERM $job
wait $job
expect "a second signal ends at once" test $? -eq 143 -a ! -e out/checkpoints/step-00000050
train 1 config.ini train.steps=50
expect "and does no harm" is_whole out/checkpoints/step-00000050
rm -rf out report
FAULT_SLEEP=2 with_fault 0 4 train 1 config.ini train.steps=100 output.checkpoint_every=1 optimizer.learning_rate=1e38
expect "a loss that is not finite ends the run" said '^fsdp_train: step [0-9]*: .* is not finite'
expect "once what is being written is complete" is_whole out/checkpoints/step-00000001

# One run at a time
rm -rf out
start 1 train.steps=1000000
until grep -qs '"step"' out/metrics.jsonl; do sleep 0.02; done
train 2 config.ini
expect "a second run is refused" said "\[output\] folder = out: another run writes there: process $job on host $(hostname), started "
kill -KILL $job
wait $job 2> /dev/null
start 1 train.steps=1000001 output.checkpoint_every=1000000
until [[ $(count start) -eq 2 ]] || ! kill -0 $job; do sleep 0.02; done
expect "a dead run's lock is taken over" kill -0 $job
kill -KILL $job
wait $job 2> /dev/null
finish
