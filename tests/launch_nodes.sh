#!/usr/bin/env bash
# Training over several nodes: the losses of one node, and a slow or broken network. Argument: the build folder.
set -uo pipefail
# shellcheck source=tests/support/nodes.sh
source "$(dirname "$0")/support/nodes.sh"
[[ -n ${FSDP_TEST_NODES:-} ]] || in_a_world_of_its_own "$@"
# shellcheck source=tests/support/launch.sh
source "$(dirname "$0")/support/launch.sh"

small_run 6
make_nodes 3

on_nodes() { # RANKS ARGUMENT ...: as `train`, over nodes of two ranks
    local ranks=$1
    shift
    over_nodes "$ranks" "$build/fsdp_train" "$@" > stdout 2> stderr < /dev/null
}

losses() { # FOLDER
    grep -o '"\(loss\|gradient_norm\)": *[^,}]*' "$1/metrics.jsonl"
}

same_losses() { # FOLDER FOLDER
    cmp <(losses "$1") <(losses "$2") && cmp "$1/model/model.safetensors" "$2/model/model.safetensors"
}

trial() { # RANKS SETTING ...: nodes of two ranks against one node
    rm -rf one several
    expect "$1 ranks on one node, ${*:2}" train "$1" config.ini output.folder=one "${@:2}"
    expect "$1 ranks on nodes of 2, ${*:2}" on_nodes "$1" config.ini output.folder=several "${@:2}"
    expect "same losses and weights on nodes of 2 as on one, $1 ranks, ${*:2}" same_losses one several
}

# Two and three nodes give the bits of one: whether parts travel through memory or as messages must not matter.
trial 4 shard.reduce=reproducible
trial 4 shard.reduce=reproducible shard.group=2
trial 6 shard.reduce=reproducible
expect "host names differ" grep -q 'host node3' stdout
expect "two ranks a node" test "$(grep -c 'host node' stdout)" = 6

# A group may be the node: the groups of the second trial. Nodes that differ are refused.
rm -rf one several
expect "groups of 2, on one node" train 4 config.ini output.folder=one shard.reduce=reproducible shard.group=2
expect "groups of a node" on_nodes 4 config.ini output.folder=several shard.reduce=reproducible shard.group=node
expect "are groups of 2" grep -q 'shard group of 2 ranks' stdout
expect "and give the same losses and weights" same_losses one several
expect "nodes with different numbers of ranks" test "$(on_nodes 3 config.ini shard.group=node; echo $?)" -ne 0
refusal='fsdp_train: argument shard.group=node: [shard] group: node 1 has 1 rank, node 0 has 2; start as many on every node, or give a number'
expect "are refused" grep -qF "$refusal" stderr

# From one node to two.
scale() {
    timeout 120 "$build/fsdp_scaling" config.ini --ranks 2,4 --repeat 1 --steps 7 --launcher "$(nodes_launcher)" \
        output.folder=scaled > stdout 2> stderr < /dev/null
}
expect "fsdp_scaling over nodes" scale
expect "has a row for two of them" grep -qE '^ +4 +24 +[0-9]+ ' stdout
expect "which they were" grep -q '"ranks": *4.*"nodes": *2' scaled/scaling/ranks-4-run-1.jsonl

trial 6 shard.strategy=gradients shard.unit=2

# A slow link changes when things come, not what comes. Kernels without netem limit the rate instead.
tc qdisc add dev cable2 root netem delay 5ms 2> /dev/null ||
    tc qdisc add dev cable2 root tbf rate 50mbit burst 32kbit latency 400ms
trial 4 shard.prefetch=3 shard.reduce=reproducible
finish
