#!/usr/bin/env bash
# A run is killed at random moments (SIGKILL, one rank or all, half of the times in the midst of writing a checkpoint)
# and started again, until it ends: there is always a whole checkpoint, no more is lost than it should be, and the end
# has the bits of the undisturbed run. Arguments: the build folder, and how many kills (default 12).
set -uo pipefail
# shellcheck source=tests/support/launch.sh
source "$(dirname "$0")/support/launch.sh"
# shellcheck source=tests/support/checkpoints.sh
source "$tests/support/checkpoints.sh"
kills=${2:-12}
interval=5
steps_most=60 # from a start to a kill, so that however fast the machine is, the kills come before the end
tiny_run $((kills * 160)) $interval

start_run() {
    start 2 "output.checkpoint_background=$background" output.log_every=1000
}

kill_while_saving() { # RANK OPERATION one|all: instead of that operation on checkpoints
    FAULT_KILL=$3 with_fault "$1" "$2" start_run
    wait $job 2> /dev/null
    expect "kill $number: operation $2 of rank $1" test -s report
}

kill_while_training() { # MILLISECONDS RANK one|all: after the first step of this start
    local starts from milliseconds ranks=()
    starts=$(count start)
    start_run
    until [[ $(count start) -gt $starts && $(tail -n 1 out/metrics.jsonl) == *'"event":"step"'* ]] || ! kill -0 $job; do
        sleep 0.01
    done
    from=$(last step)
    for ((milliseconds = 0; milliseconds < $1 && $(last step) < from + steps_most; milliseconds += 5)); do
        sleep 0.005
    done
    read -ra ranks < <(ranks_of $job 2> /dev/null)
    expect "kill $number: two ranks were there to kill" test ${#ranks[@]} -eq 2
    if [[ $3 == one ]]; then
        kill -KILL "${ranks[$2]}"
    else
        kill -KILL "${ranks[@]}"
    fi
    wait $job 2> /dev/null
}

# The newest checkpoint is the last that was started or, if that was not completed, the one before; and as long as one
# is being written, no more than an interval of steps is done beside it, in the foreground none.
check_what_is_left() {
    local checkpoint newest=0 steps started allowed=0
    steps=$(last step) started=$(last checkpoint_started)
    for checkpoint in out/checkpoints/step-*; do
        [[ ${checkpoint##*/} =~ ^step-[0-9]{8}$ ]] || continue
        newest=$((10#${checkpoint##*-}))
        expect "kill $number: $checkpoint is whole" is_whole "$checkpoint"
    done
    expect "kill $number: what was told to be complete is there" test "$newest" -ge "$(last checkpoint)"
    if [[ $newest -eq $started ]]; then
        kept=$((kept + 1))
        expect "kill $number: $((steps - newest)) steps lost since the last checkpoint" test $((steps - newest)) -le $interval
    else
        [[ $background == no ]] || allowed=$interval
        expect "kill $number: the checkpoint before that of step $started" test "$newest" -eq $((started - interval))
        expect "kill $number: $((steps - started)) steps beside the one that was being written" test $((steps - started)) -le $allowed
    fi
    [[ $((steps - newest)) -le ${most[$background]} ]] || most[$background]=$((steps - newest))
}

rm -rf out
background=yes start_run
wait $job
expect "an undisturbed run" test -e out/model/model.safetensors
mv out undisturbed

RANDOM=7
declare -A most=([yes]=0 [no]=0)
kept=0
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
expect "the kills came before the end" test "$(last step)" -lt $((kills * 160))
background=yes start_run
wait $job
expect "it goes on to the end" test "$(last step)" -eq $((kills * 160))
expect "after as many starts as it was killed and got as far" test "$(count resume)" -gt $((kills / 2))
expect "to the bits of the undisturbed run" cmp out/model/model.safetensors undisturbed/model/model.safetensors
expect "kills came while a checkpoint was being written" test $kept -lt "$kills"
echo "$kills kills, $kept while no checkpoint was being written; of $interval steps from one to the next, at most" \
    "${most[yes]} were lost with checkpoints in the background, ${most[no]} in the foreground"
finish
