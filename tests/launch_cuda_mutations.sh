#!/usr/bin/env bash
# Waits that are missing: training on the simulated GPU with one cudaStreamWaitEvent left out, in a step that is queued
# or captured as a graph, with a call that waits on the host left out, with communicators on each other's streams.
# tests/simcuda must report each as a race, or losses or weights must differ, within 20 seeds. What is not noticed is
# printed with the reason; one without a reason is a failure. Arguments: the build folder; `all` for every mutant, else a
# sample.
set -uo pipefail
# shellcheck source=tests/support/launch.sh
source "$(dirname "$0")/support/launch.sh"
export OMPI_MCA_odls_base_sigkill_timeout=0 # nothing to save: the launcher need not wait
small_run 1
programs=$build/simulated
all=${2:-} seeds=20 seeds_of_host=1
[[ -z $all ]] || seeds_of_host=6 # work is done at once, late, or now and then: each twice
RANDOM=1 # the sample is always the same

# Each case: ranks, and what differs from a small Llama of two blocks: one step of two passes.
declare -A cases=(
    [full]='2'
    [one-rank]='1 train.steps=2 device.graph=no'
    [graph]='2 train.steps=2' # of which the second is a graph
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
    train "${arguments[0]}" config.ini device.kind=cuda model.width=16 model.context=8 train.global_batch=$((2 * arguments[0])) \
        optimizer.learning_rate=1e-2 shard.timeout=20 output.folder=out "${arguments[@]:1}"
}

numbers() { # FOLDER: what must not depend on the order of work
    grep -o '"\(loss\|gradient_norm\)": *[^,}]*' "$1/metrics.jsonl"
}

# Why the last mutant may go unnoticed; nothing: there is no reason. The simulator compares the order that work has with
# the order that it would have. Where other waits order all of it likewise, nothing can be missed; where only the host
# goes on too early, or works that touch nothing in common, it may be that this does not matter: that takes a few seeds.
reason() {
    if grep -q '^simcuda has work out of order' stderr; then
        return
    elif grep -q '^simcuda keeps .* only' stderr; then
        echo "work on the same memory keeps its order; $(sed -n 's/^simcuda keeps .*; only //p' stderr | sort | uniq | paste -s -d ,)"
    elif grep -q '^simcuda keeps' stderr; then
        echo 'other waits order all work likewise'
    fi
}

declare -A tried=() noticed=() needless=()
mutant() { # CASE CALL NUMBER: tries the seeds; 1: there is no such call
    local name=$1 omitted=$2:$3 seed why code how=
    for ((seed = 0; seed < seeds; seed++)); do
        run "$name" "$omitted" "$seed"
        code=$?
        grep -q '^simcuda omits' stderr || return 1
        expect "$name without $omitted ends by itself, seed $seed" test "$code" -lt 124
        if grep -q '^simcuda: ' stderr; then
            how=reported
        elif [[ $code -ne 0 ]]; then
            how="ended with $code"
        elif ! diff <(numbers out) <(numbers "$name") > /dev/null; then
            how='other losses'
        elif ! cmp -s out/model/model.safetensors "$name/model/model.safetensors"; then
            how='other weights'
        fi
        why=$(reason)
        [[ -z $how && $why != 'other waits'* && (-z $why || $((seed + 1)) -lt $seeds_of_host) ]] || break
    done
    tried[$2]=$((${tried[$2]:-0} + 1))
    if [[ -n $how ]]; then
        [[ $how == other* ]] &&
            expect "$name without $omitted, which orders nothing, changes nothing" test "${why::11}" != 'other waits'
        noticed[$2]=$((${noticed[$2]:-0} + 1))
        [[ $how == reported && $seed -eq 0 ]] || echo "$name, without $omitted: $how, seed $seed"
    else
        needless[$2]=$((${needless[$2]:-0} + (${#why} > 0)))
        echo "$name, without $omitted: not noticed: ${why:-$(grep -m 1 '^simcuda has work out of order' stderr)}"
        expect "$name without $omitted is noticed" test -n "$why"
    fi
}

every() { # CASE CALL [FIRST]: leaves out the first, the second ...; `calls`: how many there are
    calls=$((${3:-1} - 1))
    while mutant "$1" "$2" $((calls + 1)); do
        calls=$((calls + 1))
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
    every full cudaStreamWaitEvent
    every graph cudaStreamWaitEvent $((calls + 1)) # the first step is that of `full`
    for name in one-rank optimizer reproducible groups staged; do
        every "$name" cudaStreamWaitEvent
    done
    for name in full one-rank staged; do
        every "$name" cudaDeviceSynchronize
        for call in cudaStreamSynchronize cudaDeviceSynchronize cudaEventQuery; do
            mutant "$name" "$call" 0
        done
    done
    every one-rank cudaStreamSynchronize
    for name in full optimizer reproducible groups; do
        mutant "$name" ncclCommInitRank 0
        every "$name" ncclCommInitRank
    done
else
    sample full cudaStreamWaitEvent 6 40
    sample one-rank cudaStreamWaitEvent 2 18
    for number in 50 60 80; do
        expect 'a wait in a graph' mutant graph cudaStreamWaitEvent "$number"
    done
    for call in cudaDeviceSynchronize cudaStreamSynchronize cudaEventQuery ncclCommInitRank; do
        expect "full: a call of $call" mutant full "$call" 0
    done
fi
for call in cudaStreamWaitEvent cudaStreamSynchronize cudaDeviceSynchronize cudaEventQuery ncclCommInitRank; do
    echo "$call: ${noticed[$call]:-0} of ${tried[$call]:-0} are noticed, ${needless[$call]:-0} change nothing"
    expect "$call: some are left out" test "${tried[$call]:-0}" -gt 0
done
finish
