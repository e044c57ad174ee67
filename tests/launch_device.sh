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

# What the CUDA device needs is no library of the program (bench/toolkit.sh compares programs with and without).
expect 'no library of the GPU' test "$(ldd "$build/fsdp_train" | grep -icE 'cuda|cublas|nccl|nvidia')" = 0

# A program alone in its folder has no CUDA device.
module=$build/libfsdp_cuda.so
cp "$build/fsdp_train" .

programs=$PWD
refused 1 'this program was built without its CUDA device'
refused 2 'this program was built without its CUDA device'
train 1 config.ini device.kind=cuda
expect 'code 5' test $? = 5
train 1 config.ini device.kind=auto output.folder=auto
expect 'auto without a CUDA device: the CPU' test $? = 0
cp "$build/libpreload_faults.so" libfsdp_cuda.so
refused 1 'belongs to another build of this program'
echo nonsense > libfsdp_cuda.so
refused 1 'cannot load the CUDA device: '
programs=$build

if [[ -e $module ]]; then
    train 2 config.ini --plan --ranks 4 device.kind=cuda
    expect 'a plan needs no GPU' test $? = 0
    expect 'memory by number format' grep -q '^ *moments .* fp32$' stdout
fi

losses() { # FOLDER
    sed -n 's/.*"event": *"step".*"loss": *\([^,]*\),.*/\1/p' "$1/metrics.jsonl"
}

same_losses() { # FOLDER FOLDER: as near as other orders of sums in fp32 allow
    paste <(losses "$1") <(losses "$2") | awk '
        { difference = ($1 - $2) / $2; if (difference > 5e-7 || difference < -5e-7) { print; bad = 1 } }
        END { exit bad || NR != 2 }'
}

if [[ ! -e $module ]]; then
    : # built without a CUDA device
elif grep -q '^FSDP_CUDA:.*=simulated' "$build/CMakeCache.txt"; then
    expect 'cpu' train 1 config.ini train.global_batch=4 device.kind=cpu output.folder=cpu
    for seed in 1 2; do
        export SIMCUDA_SEED=$seed
        expect "simulated GPU, seed $seed" train 1 config.ini train.global_batch=4 device.kind=cuda \
            output.folder=cuda$seed output.trace=yes
        expect "seed $seed: the losses of the CPU" same_losses cuda$seed cpu
    done
    expect 'the same bits in every order of the streams' cmp cuda1/model/model.safetensors cuda2/model/model.safetensors
    SIMCUDA_DRIVER=12020 refused 1 'the NVIDIA driver is too old: it knows CUDA 12.2'
    SIMCUDA_DRIVER=0 refused 2 'no NVIDIA driver is here'
    SIMCUDA_DEVICES=0 refused 1 'the NVIDIA driver shows no GPU'
    SIMCUDA_DEVICES=1 refused 2 'ranks 0 and 1 would share one GPU'
    SIMCUDA_MEMORY=100M refused 1 "the plan needs [0-9.]* MB of the GPU's memory"
elif [[ ! -e /dev/nvidiactl ]]; then
    refused 2 'no NVIDIA driver is here'
fi
finish
