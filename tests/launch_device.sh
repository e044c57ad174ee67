#!/usr/bin/env bash
# Which device a run gets: what the program says where it has no CUDA device, a wrong one, or no GPU for it. Argument:
# the build folder.
set -uo pipefail
# shellcheck source=tests/support/launch.sh
source "$(dirname "$0")/support/launch.sh"
export OMPI_MCA_odls_base_sigkill_timeout=0 # nothing to save: the launcher need not wait
small_run 2

refused() { # RANKS PATTERN: with device.kind = cuda: code 5 (the launcher gives 1 or 5), the words once, nothing written
    train "$1" config.ini device.kind=cuda
    expect "$1 ranks: refused" test $? -ne 0
    expect "$1 ranks: says $2" test "$(grep -c "^fsdp_train: .*$2" stderr)" = 1
    expect "$1 ranks: nothing written" test ! -e out
}

# A program alone in its folder has no CUDA device.
module=$build/libfsdp_cuda.so
cp "$build/fsdp_train" .
own=$build
build=$PWD
refused 1 'this program was built without its CUDA device'
refused 2 'this program was built without its CUDA device'
train 1 config.ini device.kind=cuda
expect 'code 5' test $? = 5
train 1 config.ini device.kind=auto output.folder=auto
expect 'auto without a CUDA device: the CPU' test $? = 0
cp "$own/libpreload_faults.so" libfsdp_cuda.so
refused 1 'belongs to another build of this program'
echo nonsense > libfsdp_cuda.so
refused 1 'cannot load the CUDA device: '
build=$own

if [[ -e $module ]]; then
    train 2 config.ini --plan --ranks 4 device.kind=cuda
    expect 'a plan needs no GPU' test $? = 0
    expect 'memory by number format' grep -q '^ *moments .* fp32$' stdout
fi
if [[ -e $module && ! -e /dev/nvidiactl ]] && ! grep -q '^FSDP_CUDA:.*=simulated' "$build/CMakeCache.txt"; then
    refused 2 'no NVIDIA driver is here'
fi
finish
