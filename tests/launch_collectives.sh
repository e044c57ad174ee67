#!/usr/bin/env bash
# Collectives between processes: right results, and no hang when a rank fails, dies, leaves or is stuck.
set -u
tool=$1/tool_collectives
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
out=$(mktemp)
trap 'rm -f "$out"' EXIT
wrong=0

# launch RANKS CASE TRANSPORT [OPTION OF MPIRUN ...]: $out has what was printed, $code how it ended, $seconds how long
# it took
launch() {
    local begun=$SECONDS
    timeout 60 mpirun -np "$1" --oversubscribe --bind-to none "${@:4}" "$tool" "$2" "$3" >"$out" 2>&1
    code=$?
    seconds=$((SECONDS - begun))
    what="$1 ranks, $2, $3"
}

complain() {
    echo "$what: $1 (exit code $code, $seconds s)"
    cat "$out"
    wrong=1
}

for transport in window messages; do
    for ranks in 1 2 3 4; do
        launch $ranks check $transport
        { [ $code = 0 ] && grep -q "^fine: $ranks ranks" "$out"; } || complain "should be fine"
    done
done
for ranks in 2 3 4; do
    launch $ranks nodes auto
    { [ $code = 0 ] && grep -q "^fine" "$out"; } || complain "should be fine"
    launch $ranks resident window
    { [ $code = 0 ] && grep -q "^fine" "$out"; } || complain "should be fine"
done

for transport in window messages; do
    launch 3 fail $transport
    [ $code != 0 ] && [ $seconds -le 5 ] || complain "should end soon with an error"
    [ "$(grep -c '^error: rank 2 (.*): disk full$' "$out")" = 1 ] || complain "the error is printed once"

    launch 3 stuck $transport
    [ $code != 0 ] && [ $seconds -le 20 ] || complain "should end after the time-out"
    [ "$(grep -c '^error: a collective .* timeout = 1 seconds; missing rank 2: stuck' "$out")" = 1 ] &&
        grep -q '^  ranks 0-1 *waits in step 1, gather 1 (2 of 4 in launch order); missing ranks: 2$' "$out" &&
        grep -q '^  rank  2 *no answer; ' "$out" || complain "who waits for whom is told once"

    launch 3 kill $transport --enable-recovery # the launcher leaves it to the others, and ends with 0
    [ $seconds -le 15 ] || complain "should end soon"
    [ "$(grep -c '^error: rank 2 (.*) has died: it was waited for in gather 1$' "$out")" = 1 ] ||
        complain "who has died is told once"

    for way in kill exit; do
        launch 3 $way $transport
        [ $code != 0 ] && [ $seconds -le 15 ] || complain "should end soon with an error"
    done
done
exit $wrong
