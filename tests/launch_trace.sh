#!/usr/bin/env bash
# The timeline of real runs: complete at any number of ranks and either transport, of the chosen steps, also when the
# run is stopped before the last of them; a folder that cannot take it. Argument: the build folder.
set -uo pipefail
# shellcheck source=tests/support/launch.sh
source "$(dirname "$0")/support/launch.sh"

small_run 5
cat >> config.ini << 'END'
[output]
folder = out
trace = yes
END

timeline() { # RANKS FIRST LAST
    "$build/tool_timeline" out/trace.json "$@" && [[ ! -e out/.trace.json.partial ]]
}

says() { # PATTERN COUNT
    [[ $(grep -cE "$1" stdout) -eq $2 ]]
}

shares='compute [0-9.]+ %, exposed communication [0-9.]+ %, idle [0-9.]+ %$'
for transport in window messages; do
    rm -rf out
    expect "3 ranks over $transport run" train 3 config.ini shard.transport=$transport
    expect "the timeline of 3 ranks over $transport" timeline 3 2 3
    expect "the shares of traced steps over $transport" says "^step [23], traced: [0-9.e-]+ s: $shares" 2
    expect "the shares of all steps over $transport" says "^a step took [0-9.e-]+ s: $shares" 1
    expect "exposed seconds in metrics" test "$(grep -c '"exposed":[0-9.e-]*,' out/metrics.jsonl)" -eq 5
done

rm -rf out
expect "one rank runs" train 1 config.ini output.trace_steps="4 5"
expect "the timeline of one rank" timeline 1 4 5
rm -rf out
expect "no trace: runs" train 1 config.ini output.trace=no
expect "no trace: no file" test ! -e out/trace.json
expect "no trace: nothing said" says "traced" 0

mkdir -p out/trace.json
expect "a name that is taken ends the run" test "$(train 2 config.ini; echo $?)" -ne 0
expect "and is named once" test "$(grep -c 'fsdp_train: rank 0 (.*): out/trace.json: cannot write: ' stderr)" -eq 1
expect "and leaves nothing" test ! -e out/.trace.json.partial
finish
