#!/usr/bin/env bash
# Training from a Hugging Face folder against golden/: losses, gradient norms and final weights of 20 AdamW steps, at
# every rank count of golden/cases.txt, sharded and not, over shared memory and over messages; and the same bits
# whatever the number of threads. With bf16 and fp16 storage against PyTorch's with the same. Argument: the build folder.
set -uo pipefail
# shellcheck source=tests/support/launch.sh
source "$(dirname "$0")/support/launch.sh"
golden=$tests/golden

value_of() { # KEY ARGUMENT ...: the value of the argument KEY=VALUE
    local key=$1 argument
    shift
    for argument in "$@"; do
        [[ $argument != "$key="* ]] || echo "${argument#*=}"
    done
}

prepare() { # an empty folder with the model and just the tokens of 20 steps
    rm -rf model out tokens.bin
    "$build/tool_model" model "${shape[@]}" || return
    local windows=$((20 * $(value_of train.global_batch "${settings[@]}")))
    "$build/tool_tokens" tokens.bin "$(value_of vocabulary "${shape[@]}")" \
        $((windows * $(value_of train.sequence "${settings[@]}") + 1)) tokens32
}

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

numbers() { # FOLDER: what must not depend on how fast it ran
    grep -o '"\(loss\|gradient_norm\)": *[^,}]*' "$1/metrics.jsonl"
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

while IFS='|' read -r name ranks shape settings; do
    name=${name// /}
    [[ $name != '#'* ]] || continue
    read -ra shape <<< "$shape"
    read -ra settings <<< "$settings"
    expect "$name: model and tokens" prepare
    for count in $ranks; do
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
done < "$golden/cases.txt"
finish
