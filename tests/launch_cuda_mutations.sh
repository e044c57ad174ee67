#!/usr/bin/env bash
# Waits that are missing: training on the simulated GPU with one cudaStreamWaitEvent left out, with a call that waits on
# the host left out everywhere, with communicators on each other's streams. tests/simcuda must report each as a race, or
# losses or weights must differ, within 20 seeds. What is not noticed is printed with the reason; one without a reason
# is a failure. Arguments: the build folder; `all` for every mutant, else a sample.
set -uo pipefail
# shellcheck source=tests/support/launch.sh
source "$(dirname "$0")/support/launch.sh"
export OMPI_MCA_odls_base_sigkill_timeout=0 # nothing to save: the launcher need not wait
small_run 1
programs=$build/simulated
all=${2:-} seeds=20
RANDOM=1 # the sample is always the same

# Each case: ranks, and what differs from a small Llama of two blocks: two passes at two ranks, one step.
declare -A cases=(
    [full]='2'
    [one-rank]='1 train.steps=2 device.graph=no'
    [graph]='2 train.steps=2'
    [optimizer]='2 shard.strategy=optimizer shard.prefetch=2'
    [reproducible]='2 shard.reduce=reproducible precision.compute=bf16 model.family=gpt2'
    [staged]='2 device.share=yes'
    [groups]='4 shard.group=2'
)

run() { # CASE OMITTED SEED: trains into the folder named by the case; returns the exit code
    local arguments
    read -ra arguments <<< "${cases[$1]}"
    rm -rf out
    SIMCUDA_DEVICES=$([[ $1 == staged ]] && echo 1 || echo "${arguments[0]}")
    export SIMCUDA_DEVICES SIMCUDA_SEED=$3
    if [[ -n $2 ]]; then export SIMCUDA_OMIT=$2; else unset SIMCUDA_OMIT; fi
    train "${arguments[0]}" config.ini device.kind=cuda model.width=16 model.context=8 train.global_batch=8 \
        optimizer.learning_rate=1e-2 shard.timeout=20 output.folder=out "${arguments[@]:1}"
}

numbers() { # FOLDER: what must not depend on the order of work
    grep -o '"\(loss\|gradient_norm\)": *[^,}]*' "$1/metrics.jsonl"
}

# Why the last mutant may go unnoticed; nothing: there is no reason.
reason() { # OMITTED
    local omitted needless
    omitted=$(grep -c '^simcuda omits' stderr)
    needless=$(grep -c '^simcuda omits .*, which orders nothing' stderr)
    if [[ $omitted -eq $needless ]]; then
        echo 'ordered already by the waits before it'
    elif [[ $1 == cudaDeviceSynchronize:1 ]]; then
        echo "the arena's zeroing; start-up's copies on the same default stream wait for it too (gpu_matmul makes none)"
    elif [[ $1 == cudaEventQuery:0 ]]; then
        echo 'it only tells a collective that is late; cudaDeviceSynchronize behind it waits for all'
    elif [[ $1 == cudaStreamSynchronize:0 ]]; then
        echo 'copies from pageable memory take it at the call, copies to it wait, and start-up ends with cudaDeviceSynchronize'
    fi
}

declare -A tried=() noticed=()
mutant() { # CASE CALL NUMBER: tries the seeds; 1: there is no such call
    local name=$1 omitted=$2:$3 seed why code how=
    for ((seed = 0; seed < seeds; seed++)); do
        run "$name" "$omitted" "$seed"
        code=$?
        grep -q '^simcuda omits' stderr || return 1
        if grep -q '^simcuda: ' stderr; then
            how=reported
        elif [[ $code -ne 0 ]]; then
            how="ended with $code"
        elif ! diff <(numbers out) <(numbers "$name") > /dev/null; then
            how='other losses'
        elif ! cmp -s out/model/model.safetensors "$name/model/model.safetensors"; then
            how='other weights'
        fi
        why=$(reason "$omitted")
        [[ -z $how && $why != 'ordered already'* && (-z $why || -n $all) ]] || break
    done
    tried[$2]=$((${tried[$2]:-0} + 1))
    if [[ -n $how ]]; then
        noticed[$2]=$((${noticed[$2]:-0} + 1))
        [[ $how == reported && $seed -eq 0 ]] || echo "$name, without $omitted: $how, seed $seed"
    else
        echo "$name, without $omitted: not noticed: ${why:-no reason is known}"
        expect "$name without $omitted is noticed" test -n "$why"
    fi
}

every() { # CASE CALL: leaves out the first, the second ...
    local number=1
    while mutant "$1" "$2" "$number"; do
        number=$((number + 1))
    done
}

sample() { # CASE CALL COUNT OF: so many of the first so many
    local i
    for ((i = 0; i < $3; i++)); do
        expect "$1: enough calls of $2" mutant "$1" "$2" $((1 + RANDOM % $4))
    done
}

for name in "${!cases[@]}"; do
    [[ -n $all || $name == full || $name == one-rank || $name == graph ]] || continue
    expect "$name: nothing left out" run "$name" '' 0
    mv out "$name"
done
if [[ -n $all ]]; then
    for name in full one-rank optimizer reproducible; do
        every "$name" cudaStreamWaitEvent
        every "$name" cudaDeviceSynchronize
    done
    # Where ranks share a GPU, every collective waits for the whole device: other waits have little left to do.
    for name in full one-rank staged; do
        for call in cudaStreamSynchronize cudaDeviceSynchronize cudaEventQuery; do
            mutant "$name" "$call" 0
        done
    done
    for ((number = 88; number < 165; number += 4)); do # the second step is captured as a graph
        mutant graph cudaStreamWaitEvent "$number"
    done
    for name in full optimizer reproducible groups; do
        mutant "$name" ncclCommInitRank 0
        every "$name" ncclCommInitRank
    done
else
    sample full cudaStreamWaitEvent 6 80
    sample one-rank cudaStreamWaitEvent 2 18
    for number in 90 110 150; do # the second step is captured as a graph
        expect 'a wait in a graph' mutant graph cudaStreamWaitEvent "$number"
    done
    for call in cudaDeviceSynchronize cudaStreamSynchronize cudaEventQuery ncclCommInitRank; do
        expect "full: a call of $call" mutant full "$call" 0
    done
fi
for call in cudaStreamWaitEvent cudaStreamSynchronize cudaDeviceSynchronize cudaEventQuery ncclCommInitRank; do
    echo "$call: ${noticed[$call]:-0} of ${tried[$call]:-0} are noticed"
    expect "$call: some are left out" test "${tried[$call]:-0}" -gt 0
done
finish
