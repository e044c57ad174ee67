#!/usr/bin/env bash
# Training from a Hugging Face folder against golden/: losses, gradient norms and final weights of 20 AdamW steps, at
# every rank count of golden/cases.txt, sharded and not, over shared memory and over messages; and the same bits
# whatever the number of threads. With bf16 and fp16 storage against PyTorch's with the same. Argument: the build folder.
set -uo pipefail
# shellcheck source=tests/support/launch.sh
source "$(dirname "$0")/support/launch.sh"
# shellcheck source=tests/support/parity.sh
source "$tests/support/parity.sh"

check() { # CASE RANKS OVERRIDE ...: train and compare
    local name=$1 ranks=$2
    shift 2
    rm -rf out
    expect "$name at $ranks ranks $*: run" train "$ranks" "$golden/parity.ini" "${settings[@]}" "$@"
    echo "$name at $ranks ranks $*"
    expect "$name at $ranks ranks $*: values" "$build/tool_compare" "$golden/$name.json" out
}

check_stored() { # CASE STORAGE RANKS OVERRIDE ...: the same with 16-bit storage
    local name=$1 storage=$2 ranks=$3
    shift 3
    rm -rf out
    expect "$name in $storage at $ranks ranks $*: run" train "$ranks" "$golden/parity.ini" "${settings[@]}" \
        precision.compute="$storage" "$@"
    echo "$name in $storage at $ranks ranks $*"
    expect "$name in $storage at $ranks ranks $*: values" "$build/tool_compare" "$golden/$name.json" out \
        "$golden/$name-$storage.json"
}

same_bits() { # CASE: one thread and two
    rm -rf out one
    expect "$1 with one thread" train 1 "$golden/parity.ini" "${settings[@]}" device.threads=1 output.folder=one
    expect "$1 with two threads" train 1 "$golden/parity.ini" "${settings[@]}" device.threads=2
    expect "$1: same model at 1 and 2 threads" cmp one/model/model.safetensors out/model/model.safetensors
    expect "$1: same metrics at 1 and 2 threads" diff <(numbers one) <(numbers out)
}

reproducible() { # CASE COMPUTE RANKS ...: the same model and metrics at every number of ranks
    local name=$1 compute=$2 count first=$3
    shift 2
    for count in "$@"; do
        rm -rf out
        expect "$name in $compute reproducible at $count ranks" train "$count" "$golden/parity.ini" "${settings[@]}" \
            shard.reduce=reproducible train.steps=50 precision.compute="$compute"
        if [[ $count -eq $first ]]; then
            rm -rf one && mv out one
            continue
        fi
        expect "$name: same model at $first and $count ranks" cmp one/model/model.safetensors out/model/model.safetensors
        expect "$name: same metrics at $first and $count ranks" diff <(numbers one) <(numbers out)
    done
}

check_case() { # CASE RANK_COUNT ...
    local name=$1 count storage
    shift
    for count in "$@"; do
        check "$name" "$count" shard.strategy=full
    done
    case $name in
    gpt2-tied | llama-untied)
        check "$name" 3 shard.strategy=none
        check "$name" 2 shard.transport=messages
        same_bits "$name"
        for storage in bf16 fp16; do
            check_stored "$name" "$storage" 1
            check_stored "$name" "$storage" 3 precision.communicate=bf16
            check_stored "$name" "$storage" 4 shard.group=2 shard.recompute=block
        done
        check_stored "$name" bf16 2 shard.strategy=none precision.communicate=bf16 shard.transport=messages
        check_stored "$name" fp16 2 precision.loss_scale=4096 shard.strategy=gradients
        ;;
    gpt2-untied)
        check "$name" 5 shard.strategy=gradients shard.recompute=attention
        check "$name" 4 shard.strategy=optimizer
        check "$name" 4 shard.group=2 shard.recompute=block
        reproducible "$name" fp32 1 2 4 8
        reproducible "$name" bf16 1 4
        ;;
    llama-tied)
        check "$name" 2 shard.strategy=gradients shard.transport=messages
        check "$name" 3 shard.strategy=optimizer shard.recompute=block
        reproducible "$name" fp32 3 6
        reproducible "$name" fp16 3 6
        ;;
    gpt2-wide | llama-scaled)
        check "$name" 1 shard.strategy=none
        check "$name" 2 shard.unit=2 shard.prefetch=3
        ;;
    esac
}

for_each_case check_case
finish
