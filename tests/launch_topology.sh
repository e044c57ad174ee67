#!/usr/bin/env bash
# fsdp_topology from outside: what it prints and writes for machines from files and for this one, and mistakes.
set -uo pipefail
build=$(realpath "$1")
golden=$(cd "$(dirname "${BASH_SOURCE[0]}")/golden/topologies" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
cp "$golden"/*.xml .
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# shows LINE ARGUMENTS...: exit code 0, nothing on standard error, and this line on standard output
shows() {
    local line=$1
    shift
    "$build/fsdp_topology" "$@" > output 2> errors || fail "$*: exit code $?: $(cat errors)"
    [ ! -s errors ] || fail "$*: standard error: $(cat errors)"
    grep -qF -- "$line" output || fail "$*: '$line' is not in: $(cat output)"
}

# refused CODE MESSAGE ARGUMENTS...: the message alone on standard error
refused() {
    local code=$1 message=$2
    shift 2
    "$build/fsdp_topology" "$@" > output 2> errors
    local ended=$?
    [ $ended -eq "$code" ] || fail "$*: exit code $ended, expected $code"
    [ "$(cat errors)" == "fsdp_topology: $message" ] || fail "$*: found '$(cat errors)', expected '$message'"
}

# The tree, bandwidths, rings, their limit, predictions.
shows "│  └─ GPU 1  0000:12:00.0                           12 GB/s  x16 8 GT/s" cube8.nccl.xml
shows "Between any two NUMA nodes: 10 GB/s" cube8.nccl.xml
shows "  GPU 0             20     20     40     40      .      .      ." cube8.nccl.xml
shows "For NCCL: 6 channels of 20 GB/s, 120 GB/s together." cube8.nccl.xml
shows "Predicted for large messages on 8 ranks: all-gather and reduce-scatter 120 GB/s bus bandwidth each, 137.14 GB/s of the whole buffer." cube8.nccl.xml
shows "GPUs 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 to NVSwitch, 6 side by side: 240 GB/s each, 12 NVLinks" switched16.nccl.xml
shows "1 ring, 6 GB/s together:" unequal4.hwloc.xml
shows "slowest: GPU 3 → NUMA node 0, 6 GB/s" unequal4.hwloc.xml
shows "in whatever order, a ring crosses this link; it holds 6 GB/s." unequal4.hwloc.xml
shows "4 rings, 96 GB/s together, on each of 2 nodes like this one:" rails4.nccl.xml --nodes 2
shows "card mlx5_1: 1 0 2 3  (PXN)" rails4.nccl.xml --nodes 2
shows "One GPU, so there is nothing to exchange." one.hwloc.xml
shows "No GPUs, so there are no rings." none.nccl.xml
shows "NUMA node " # this machine, whatever it is
shows "this machine: "

# Several files, each in turn.
shows "ring6.nccl.xml (NCCL XML): 6 GPUs" cube8.hwloc.xml ring6.nccl.xml
grep -qF "cube8.hwloc.xml (hwloc XML): 8 GPUs, 2 NUMA nodes, 4 PCIe switches, 0 network cards" output || fail "first of two files"

# What it writes; hwloc's file and NCCL's give the same.
for kind in nccl hwloc; do
    shows "GPU" ring6.$kind.xml --json $kind.json --nccl $kind.graph --svg $kind.svg
    [ "$(tr -d ' \n' < $kind.json | grep -o '"gpus":\[[^]]*\]')" == '"gpus":[0,1,2,3,4,5]' ] || fail "$kind.json: gpus"
    grep -q '"total": 45' $kind.json || fail "$kind.json: total: $(cat $kind.json)"
    grep -q '"limit": 45' $kind.json || fail "$kind.json: limit: $(cat $kind.json)"
    grep -q '<graph id="0" pattern="4" crossnic="0" nchannels="9" speedintra="5" speedinter="5" ' $kind.graph || fail "$kind.graph: $(cat $kind.graph)"
    [ "$(grep -c '<channel>' $kind.graph)" -eq 9 ] || fail "$kind.graph: channels"
    [ "$(grep -c '<gpu dev="[0-5]"/>' $kind.graph)" -eq 54 ] || fail "$kind.graph: GPUs"
    [ "$(grep -c 'class="numa"' $kind.svg)" -eq 2 ] || fail "$kind.svg: NUMA nodes"
    [ "$(tail -n 1 $kind.svg)" == "</svg>" ] || fail "$kind.svg: cut off"
done
cmp -s nccl.json hwloc.json || fail "the sources give different rings: $(diff nccl.json hwloc.json)"
cmp -s nccl.graph hwloc.graph || fail "the sources give different graph files"
shows "GPU" none.nccl.xml --json none.json --svg none.svg
grep -q '"rings": \[\]' none.json || fail "none.json: $(cat none.json)"
shows "fsdp_topology " --version
shows "--nodes N" --help

# Mistakes.
echo "key = value" > config.ini
echo '<html/>' > page.xml
echo '<topology><object type="System"/></topology>' > old.xml
expected="expected hwloc's XML (lstopo FILE.xml) or NCCL's topology XML (NCCL_TOPO_DUMP_FILE)"
refused 2 "config.ini:1: not XML: syntax error; $expected" config.ini
refused 2 "absent.xml: cannot open: No such file or directory" absent.xml
refused 2 "page.xml:1: the root element is <html>; expected <topology> (hwloc's XML) or <system> (NCCL's topology XML)" page.xml
refused 2 "old.xml: written by hwloc 1, whose files lack NVLinks and say nothing about memory nodes that can be read today; write it anew with hwloc 2: lstopo FILE.xml" old.xml
refused 2 "absent/ring.svg: cannot write: No such file or directory" ring6.nccl.xml --svg absent/ring.svg
refused 2 "/dev/full: cannot write: No space left on device" ring6.nccl.xml --json /dev/full
refused 2 "graph.xml: not written: one.nccl.xml has one GPU, so it has no rings" one.nccl.xml --nccl graph.xml
refused 2 "graph.xml: not written: none.nccl.xml has no GPUs, so it has no rings" none.nccl.xml --nccl graph.xml
refused 2 "the machine has no network card, so no ring leaves it; expected one for several nodes" cube8.nccl.xml --nodes 2
refused 2 "argument --nodes 0: takes a whole number, 1 to 100000" cube8.nccl.xml --nodes 0
refused 2 "argument --svg: a value is missing; see fsdp_topology --help" cube8.nccl.xml --svg
refused 2 "argument --ncl: unknown option; did you mean --nccl; see fsdp_topology --help" --ncl x
refused 2 "--svg, --nccl and --json take one machine; 2 files are given" cube8.nccl.xml ring6.nccl.xml --json x

[ $failures -eq 0 ]
