#!/usr/bin/env bash
# Rings from the wiring, given to NCCL, simulated (tests/simcuda), which checks the file: on machines from files; and what
# is refused. Argument: the build folder.
set -uo pipefail
# shellcheck source=tests/support/launch.sh
source "$(dirname "$0")/support/launch.sh"
programs=$build/simulated # fsdp_train beside the simulated device
cp "$tests"/golden/topologies/*.xml .
small_run 1
sed -i 's/^global_batch.*/global_batch = 4/' config.ini
export OMPI_MCA_odls_base_sigkill_timeout=0 # nothing to save: the launcher need not wait
mkdir temporary
export TMPDIR=$PWD/temporary SIMCUDA_SEED=3

rings() { # RANKS FOLDER TOPOLOGY OVERRIDE ...
    rm -rf "$2"
    train "$1" config.ini device.kind=cuda shard.reduce=reproducible shard.ring=hwloc device.topology="$3" \
        output.folder="$2" "${@:4}"
}

expect 'four ranks, in the order that NCCL likes' train 4 config.ini device.kind=cuda shard.reduce=reproducible output.folder=plain
for source in nccl hwloc; do
    expect "four unequal GPUs, $source" rings 4 ringed unequal4.$source.xml
    expect "$source: the plan says rings and places" \
        grep -qE '^rings        1 of 6 GB/s \(of 6; no more than 6 is possible\), GPUs by local rank:( [0-3]){4}$' stdout
    expect "$source: NCCL says that it uses the ring" grep -qx 'rings        NCCL uses the 1 ring given' stdout
    expect "$source: no warning" test ! -s stderr
    expect "$source: the same model" cmp plain/model/model.safetensors ringed/model/model.safetensors
done
expect 'no file is left' test -z "$(find temporary -name 'fsdp_train.rings.*')"
expect 'groups of two do not, with all the time there is' rings 4 ringed unequal4.nccl.xml shard.group=2 shard.timeout=1e300
expect 'and the plan says so' grep -q "^rings        NCCL's own: groups of 2 ranks are not those of whole nodes$" stdout
expect 'one rank needs none' rings 1 ringed unequal4.nccl.xml
expect 'nor do ranks on the CPU' train 2 config.ini shard.ring=hwloc device.topology=nothing.xml output.folder=cpu

# ring = auto: whichever are made slow lose, and either way the model is the same.
choice() { # SLOW WORDS
    rm -rf ringed
    SIMCUDA_NCCL_SLOW=$1 expect "auto, $1 are slow" train 4 config.ini device.kind=cuda shard.reduce=reproducible \
        shard.ring=auto device.topology=unequal4.nccl.xml output.folder=ringed
    expect "auto, $1 are slow: both figures, and what is kept" grep -qE \
        "^rings        measured: [0-9.e-]+ GB/s, NCCL's own [0-9.e-]+ GB/s on the bus \([0-9.]+ MB gathered and reduced, best of [0-9]+ turns each\); $2 are kept$" stdout
    expect "auto, $1 are slow: the same model" cmp plain/model/model.safetensors ringed/model/model.safetensors
    expect 'no file is left' test -z "$(find temporary -name 'fsdp_train.rings.*')"
}
choice searched these
choice given "NCCL's own"
expect 'auto with more GPUs than ranks' train 2 config.ini device.kind=cuda shard.ring=auto \
    device.topology=unequal4.nccl.xml output.folder=ringed
expect "is NCCL's own, and says why" grep -qxF \
    "rings        NCCL's own: 2 ranks on host $(hostname), and unequal4.nccl.xml has 4 GPUs" stdout
expect 'auto on the CPU' train 2 config.ini shard.ring=auto output.folder=cpu
expect 'has no rings, and says so' grep -qx "rings        none between CPUs: ranks read each other's memory or send messages" stdout
expect 'auto without the topology that it names' test "$(train 4 config.ini device.kind=cuda shard.ring=auto device.topology=absent.xml; echo $?)" -ne 0
expect 'says so' grep -qx 'fsdp_train: absent.xml: cannot open: No such file or directory' stderr

# What NCCL says that it uses may be something else, or nothing, or go where the user wants it.
warned() { # WARNING VARIABLE=VALUE
    expect "a run with $2" with "$2" rings 4 ringed unequal4.nccl.xml
    expect "a run with $2: $1" grep -qxE "fsdp_train: warning: $1" stderr
    expect 'no file is left' test -z "$(find temporary -name 'fsdp_train.rings.*')"
}
with() { # VARIABLE=VALUE COMMAND ...
    local -x "${1?}"
    "${@:2}"
}
warned 'NCCL does not use the rings given: ring 1 runs over GPUs( [0-3]){4}; given was GPUs 0 1 2 3' SIMCUDA_NCCL_RINGS=other
warned 'NCCL has not written \(NCCL_GRAPH_DUMP_FILE\) whether it uses the rings given' NCCL_GRAPH_DUMP_FILE_RANK=9
expect "the user's dump" with NCCL_GRAPH_DUMP_FILE=dump.xml rings 4 ringed unequal4.nccl.xml
expect 'is no obstacle' grep -qx 'rings        NCCL uses the 1 ring given' stdout
expect 'and is written' test -s dump.xml
echo other > dump.xml
export NCCL_GRAPH_DUMP_FILE=dump.xml
warned 'NCCL has not written \(NCCL_GRAPH_DUMP_FILE\) whether it uses the rings given' NCCL_GRAPH_DUMP_FILE_RANK=9
expect 'what lay at its place says nothing' grep -qx other dump.xml
warned 'rank 0 \(.*\): NCCL_GRAPH_DUMP_FILE = none/dump.xml: cannot write: No such file or directory' NCCL_GRAPH_DUMP_FILE=none/dump.xml
unset NCCL_GRAPH_DUMP_FILE

SIMCUDA_DEVICES=1 expect 'ranks that share a GPU' rings 4 ringed unequal4.nccl.xml device.share=yes
expect 'use no rings' grep -qx "rings        not used: these ranks exchange through the host's memory, without NCCL" stdout

refused() { # MESSAGE RANKS TOPOLOGY
    expect "$3 at $2 ranks is refused" test "$(rings "$2" ringed "$3"; echo $?)" -ne 0
    expect "$3 at $2 ranks: $1" grep -qxF "fsdp_train: $1" stderr
}
host=$(hostname)
ring="argument shard.ring=hwloc: [shard] ring:"
refused "$ring 2 ranks on host $host, and unequal4.nccl.xml has 4 GPUs; start one rank for each, or use ring = nccl" 2 unequal4.nccl.xml
refused "$ring 2 ranks on host $host, and none.hwloc.xml has 0 GPUs; start one rank for each, or use ring = nccl" 2 none.hwloc.xml
refused "$ring 2 ranks on host $host, and one.nccl.xml has 1 GPU; start one rank for each, or use ring = nccl" 2 one.nccl.xml
refused "absent.xml: cannot open: No such file or directory" 2 absent.xml

# The simulated NCCL takes no file that is not of its GPUs.
wrong() { # WORDS SED_SCRIPT
    sed "$2" graph.xml > wrong.xml
    expect "a wrong graph is refused: $1" test "$(with_graph wrong.xml; echo $?)" -ne 0
    expect "a wrong graph: $1" grep -qE "NCCL: .*$1" stderr
}
"$build/fsdp_topology" unequal4.nccl.xml --nccl graph.xml > stdout
with_graph() { # FILE: as a user gives it to NCCL
    NCCL_GRAPH_FILE=$PWD/$1 train 4 config.ini device.kind=cuda output.folder=own
}
expect 'what fsdp_topology writes is taken' with_graph graph.xml
wrong 'is not of the communicator' 's/dev="3"/dev="5"/'
wrong 'has 3 GPUs, and the communicator 4' '/dev="3"/d'
wrong 'says that it has 2' 's/nchannels="1"/nchannels="2"/'
wrong 'ends before' '/<.graphs>/d'
finish
