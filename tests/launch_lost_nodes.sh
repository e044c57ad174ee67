#!/usr/bin/env bash
# Ranks and nodes that are lost in the middle of a run over several nodes: the others name them within ten seconds, the
# job ends with 5, and the run can go on later. Argument: the build folder.
set -uo pipefail
# shellcheck source=tests/support/nodes.sh
source "$(dirname "$0")/support/nodes.sh"
[[ -n ${FSDP_TEST_NODES:-} ]] || in_a_world_of_its_own "$@"
# shellcheck source=tests/support/launch.sh
source "$(dirname "$0")/support/launch.sh"

small_run 1000000
make_nodes 3

# When a rank dies, mpirun is to leave it to the others, instead of killing them at once.
export OMPI_MCA_orte_abort_on_non_zero_status=0
export OMPI_MCA_odls_base_sigkill_timeout=1
# It tells the daemons of all nodes to end and waits for an answer, or until TCP gives the lost node up: 15 minutes,
# unless the system is told to try less often.
echo 1 > /proc/sys/net/ipv4/tcp_retries2

cat > rank << 'END'
#!/usr/bin/env bash
# Runs a rank; its process and its exit code are left in files.
trap : TERM # the launcher's, which the rank gets as well
"$@" &
process=$!
echo "$process" > "process.$OMPI_COMM_WORLD_RANK"
code=0
while kill -0 "$process" 2> /dev/null; do
    wait "$process"
    code=$?
done
echo "$code" > "code.$OMPI_COMM_WORLD_RANK"
exit "$code"
END
chmod +x rank

start() { # RANKS ARGUMENT ...: a run without end in the background, past its sixth step; $with: variables of its ranks
    rm -rf out process.* code.*
    over_nodes "$1" ./rank env "${with[@]}" "$build/fsdp_train" config.ini output.folder=out "${@:2}" \
        > stdout 2> stderr < /dev/null &
    job=$!
    expect "$1 ranks on nodes of 2 start" within 30 more_steps_than 6
}
with=()

process_of() { # RANK
    cat "process.$1"
}

says() { # PATTERN
    grep -qE "^fsdp_train: $1" stderr
}

gone() {
    ! kill -0 "$job" 2> /dev/null
}

ranks_ended() { # RANK ...: the processes are gone, or wait for their parent to notice
    local rank
    for rank in "$@"; do
        grep -qs '^State:[[:space:]]*[^ZX]' "/proc/$(process_of "$rank")/status" && return 1
    done
    return 0
}

ends_with() { # EXIT CODE of the launcher
    within 30 gone || { kill -KILL "$job"; echo "mpirun is still running"; return 1; }
    local code=0
    wait "$job" || code=$?
    [[ $code -eq $1 ]] || { echo "exit code $code"; return 1; }
}

quiet() { # no warnings of other work on this machine
    sed -i '/^fsdp_train: warning: /d' stderr
}

lost() { # WHAT PATTERN RANK ...: these ranks are left
    local end=$((SECONDS + 10))
    expect "$1 is named within 10 seconds" within 10 says "$2"
    expect "$1: the ranks that are left end by then" within $((end - SECONDS)) ranks_ended "${@:3}"
    expect "$1: the lowest rank ends with 5" within 5 grep -qsx 5 code.0
    quiet
    expect "$1: it is said once" test "$(grep -c '^fsdp_train: ' stderr)" -eq 1
    expect "$1: no model is left behind" test ! -e out/model
}

the_end_is_recorded() { # PATTERN
    tail -n 1 out/metrics.jsonl | grep -qE '"event": *"end","reason": *"error",.*"message": *"'"$1"
}

# A link that goes down. The node behind it hears nobody.
start 6 output.checkpoint_every=3
ip link set cable2 down
lost "a node without a network" 'node node2 \(ranks 2-3\) is lost: it has not answered ' 0 1 4 5
expect "the ranks without a network end, too" within 5 ranks_ended 2 3
expect "the lowest of them ends with 5" within 5 grep -qsx 5 code.2
expect "so does the job" ends_with 5
expect "the metrics say why" the_end_is_recorded 'node node2 \(ranks 2-3\) is lost'
ip link set cable2 up

# The run goes on from its last checkpoint.
expect "the run goes on" train 2 config.ini output.folder=out "train.steps=$(($(steps) + 3))"
expect "from a checkpoint" grep -q '"event": *"resume","step": *[1-9]' out/metrics.jsonl
expect "to its end" test -f out/model/model.safetensors

start 4
kill -KILL "$(process_of 3)"
lost "a rank of another node" 'rank 3 .*has died' 0 1
expect "the job of a rank that died ends with 5" ends_with 5
expect "the metrics say it died" the_end_is_recorded 'rank 3 .*has died'

# A whole node, while rank 0 stands still in a write and does not come upon the failure: the thread speaks for it.
with=(LD_PRELOAD="$build/libpreload_faults.so" FAULT_PATH=checkpoints FAULT_NUMBER=1 FAULT_RANK=0 FAULT_SLEEP=60
    FAULT_REPORT="$PWD/fault")
start 4 output.checkpoint_every=7 output.checkpoint_background=no
expect "rank 0 stands still" within 10 test -s fault
kill -KILL "$(process_of 2)" "$(process_of 3)"
lost "a whole node" 'rank 2 has died, perhaps with its whole node node2 \(ranks 2-3\)' 0 1
expect "the job ends, too" within 30 gone
with=()

# Nothing of this when a job is stopped in order ...
start 4
kill -TERM "$(process_of 2)"
expect "a stopped job ends" within 20 gone
quiet
expect "nobody is missed in a stopped job" test "$(grep -c '^fsdp_train: ' stderr)" -eq 0
expect "a stopped job saves its model" test -f out/model/model.safetensors

walled_off() {
    rm -rf out
    over_nodes 4 "$build/fsdp_train" config.ini output.folder=out train.steps=3 > stdout 2> stderr < /dev/null
}

# ... and nodes that do not let others in say so, once, and train.
if ip -n node1 rule add to 10.213.7.2 ipproto tcp sport 32768-65534 dport 32768-65534 prohibit 2> /dev/null; then
    expect "nodes that do not connect train" walled_off
    warning='^fsdp_train: warning: no other node reaches node node1 (ranks 0-1), nor 1 more node, at any address'
    expect "and say what that means" test "$(grep -c "$warning" stderr)" -eq 1
else
    echo "skipped: this system has no routing rules for ports, so that no node can be walled off"
fi
finish
