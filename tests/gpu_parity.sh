#!/usr/bin/env bash
# Training on GPUs against golden/: losses, gradient norms and final weights of 20 AdamW steps, in fp32 and in 16 bits,
# over NCCL, and with two ranks on one GPU whose collectives go through the host's memory. For whatever device
# libfsdp_cuda.so has; bench/gpu.sh runs it. Arguments: the build folder; the folder of fsdp_train with the device; the
# golden cases, as one argument; numbers of ranks.
set -uo pipefail
# shellcheck source=tests/support/launch.sh
source "$(dirname "$0")/support/launch.sh"
# shellcheck source=tests/support/parity.sh
source "$tests/support/parity.sh"
programs=$(realpath "$OLDPWD/$2" 2> /dev/null || realpath "$2")
chosen=" $3 " counts=("${@:4}") patience=300
one_gpu=${CUDA_VISIBLE_DEVICES:-0}
one_gpu=${one_gpu%%,*}
export OMPI_MCA_odls_base_sigkill_timeout=0 # nothing to save: the launcher need not wait

check() { # CASE
    local ranks storage
    [[ $chosen == *" $1 "* ]] || return
    for ranks in "${counts[@]}"; do
        golden_run "$1" "$ranks" ''
        for storage in bf16 fp16; do
            [[ ! -e $golden/$1-$storage.json ]] ||
                golden_run "$1" "$ranks" "$golden/$1-$storage.json" precision.compute=$storage
        done
    done
    CUDA_VISIBLE_DEVICES=$one_gpu SIMCUDA_DEVICES=1 golden_run "$1" 2 '' device.share=yes
}

for_each_case check
finish
