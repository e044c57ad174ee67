#!/usr/bin/env bash
# A run is killed at random moments (SIGKILL, one rank or all, half of the times in the midst of writing a checkpoint)
# and started again, until it ends: there is always a whole checkpoint, no more is lost than it should be, and the end
# has the bits of the undisturbed run. Arguments: the build folder, and how many kills (default 12).
set -uo pipefail
# shellcheck source=tests/support/launch.sh
source "$(dirname "$0")/support/launch.sh"
export OMPI_MCA_odls_base_sigkill_timeout=0
kills=${2:-12}
interval=5

"$build/tool_tokens" tokens.bin 97 3000 tokens16
cat > config.ini << END
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
steps = $((kills * 80))
global_batch = 4
[shard]
reduce = reproducible
[device]
kind = cpu
threads = 1
[output]
checkpoint_every = $interval
log_every = 1000
END

start() { # COMMAND ...: in the background; its process is $job
    "$@" mpirun -np 2 --oversubscribe --bind-to none "$build/fsdp_train" config.ini output.folder=out \
        "output.checkpoint_background=$background" > stdout 2> stderr < /dev/null &
    job=$!
}

count() { # EVENT: how many of them metrics.jsonl has
    grep -cs "\"event\":\"$1\"" out/metrics.jsonl
}

last() { # EVENT: its last step
    grep -s "\"event\":\"$1\"" out/metrics.jsonl | grep -o '"step":[0-9]*' | tail -n 1 | grep -o '[0-9]*$' || echo 0
}

kill_while_saving() { # RANK OPERATION one|all: instead of that operation on checkpoints
    rm -f report
    start env FAULT_PATH=/checkpoints FAULT_RANK="$1" FAULT_NUMBER="$2" FAULT_KILL="$3" FAULT_REPORT="$PWD/report" \
        LD_PRELOAD="$build/libpreload_faults.so"
    wait $job 2> /dev/null
    expect "kill $number: operation $2 of rank $1" test -s report
}

kill_while_training() { # MILLISECONDS RANK one|all: after the first step of this start
    local starts ranks=()
    starts=$(count start)
    start
    until [[ $(count start) -gt $starts && $(tail -n 1 out/metrics.jsonl) == *'"event":"step"'* ]] || ! kill -0 $job; do
        sleep 0.01
    done
    sleep "$(printf '0.%03d' "$1")"
    read -ra ranks 2> /dev/null < "/proc/$job/task/$job/children"
    expect "kill $number: two ranks were there to kill" test ${#ranks[@]} -eq 2
    if [[ $3 == one ]]; then
        kill -KILL "${ranks[$2]}"
    else
        kill -KILL "${ranks[@]}"
    fi
    wait $job 2> /dev/null
}

# A checkpoint that is written in the background is of a step that lies behind the one that is being done.
check_what_is_left() {
    local checkpoint done newest=0 allowed=$interval
    [[ $background == no ]] || allowed=$((2 * interval))
    done=$(last step)
    for checkpoint in out/checkpoints/step-*; do
        [[ ${checkpoint##*/} =~ ^step-[0-9]{8}$ ]] || continue
        newest=$((10#${checkpoint##*-}))
        expect "kill $number: $checkpoint is whole" "$build/fsdp_export" "$checkpoint" --verify
    done
    expect "kill $number: at most $allowed of $done steps are lost" test $((done - newest)) -le $allowed
    most=$((done - newest > most ? done - newest : most))
}

rm -rf out
background=yes start
wait $job
expect "an undisturbed run" test -e out/model/model.safetensors
mv out undisturbed

RANDOM=7
most=0
for ((number = 1; number <= kills; number++)); do
    background=$([[ $((number % 4)) -lt 2 ]] && echo yes || echo no)
    victims=$([[ $((RANDOM % 2)) -eq 0 ]] && echo one || echo all)
    if [[ $((number % 2)) -eq 0 ]]; then
        kill_while_saving $((RANDOM % 2)) $((RANDOM % 40 + 1)) "$victims"
    else
        kill_while_training $((RANDOM % 100)) $((RANDOM % 2)) "$victims"
    fi
    check_what_is_left
done
expect "the kills came before the end" test "$(last step)" -lt $((kills * 80))
background=yes start
wait $job
expect "it goes on to the end" test "$(last step)" -eq $((kills * 80))
expect "after as many starts as it was killed and got as far" test "$(count resume)" -gt $((kills / 2))
expect "to the bits of the undisturbed run" cmp out/model/model.safetensors undisturbed/model/model.safetensors
echo "$kills kills; at most $most steps were lost, of $interval from one checkpoint to the next"
finish
