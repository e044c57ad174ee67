#!/usr/bin/env bash
# bench_collectives from outside: a row for each way and size, and what rings predict, on the CPU and on the simulated
# GPU (tests/simcuda). Rates are not looked at. Argument: the build folder.
set -uo pipefail
# shellcheck source=tests/support/launch.sh
source "$(dirname "$0")/support/launch.sh"
if [[ ! -e $build/bench_collectives ]]; then
    echo 'SKIPPED: no benchmarks are built'
    exit 77
fi
short=(--largest 64 --turns 2)
mkdir temporary
export TMPDIR=$PWD/temporary

bench() { # FOLDER RANKS ARGUMENT ...
    timeout 60 mpirun -np "$2" --oversubscribe --bind-to none "$1/bench_collectives" "${@:3}" > stdout 2> stderr < /dev/null
}

# rows NAME MEMCPY LIMIT SIZE ...: one for each size; by patterns, whether there is a ratio to memcpy and to the limit.
# The bus has half (of two ranks) or three quarters of the algorithm's bandwidth.
rows() {
    local name=$1 copied=$2 limited=$3 rate='[0-9]+\.[0-9]{2}' size kind
    shift 3
    kind=" +$rate +$rate +$copied +$limited"
    for size in "$@"; do
        grep -qE "^$name +$size +$copied$kind$kind\$" stdout || return 1
    done
}
some='[0-9]+\.[0-9]{2}'

expect 'two ranks on the CPU' bench "$build" 2 --largest 1024 --turns 2
for way in window messages; do
    expect "$way" rows $way "$some" - 64 1024
done
[[ -e $build/libfsdp_cuda.so ]] ||
    expect 'no NCCL, and why' grep -q '^NCCL is not measured, and rings predict nothing between CPUs: this program was built without its CUDA' stdout

expect 'four simulated GPUs' bench "$build/simulated" 4 "${short[@]}" --topology "$tests/golden/topologies/unequal4.nccl.xml"
expect 'what rings predict' grep -qx 'rings: the links let them carry 6 GB/s on the bus' stdout
expect 'that it is simulated' grep -qx 'NCCL is simulated on the host: its rates mean nothing' stdout
for way in window messages; do
    expect "$way beside it" rows $way "$some" - 64
done
for way in NCCL 'NCCL, rings given'; do
    expect "$way" rows "$way" - "$some" 64
done
expect 'two simulated GPUs of a machine with four' bench "$build/simulated" 2 "${short[@]}" --topology "$tests/golden/topologies/unequal4.nccl.xml"
expect 'no prediction, and why' grep -qx 'rings predict nothing: the topology has 4 GPUs, and there are 2 ranks' stdout
expect 'NCCL without it' rows NCCL - - 64
expect 'no rings are given' test "$(grep -c given stdout)" -eq 0
expect 'no file is left' test -z "$(find temporary -name 'bench_collectives.rings.*')"

expect 'one rank is too few' test "$("$build/bench_collectives" > stdout 2> stderr; echo $?)" -eq 2
expect 'and is told' grep -qx 'bench_collectives: start it with mpirun -np 2 or more' stderr
finish
