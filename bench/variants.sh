#!/usr/bin/env bash
# What choices cost: trains the shape of bench/training.sh with one setting after the other, in turns, and prints each
# one's planned memory and the time of its step beside the first one's.
#
#     bench/variants.sh strategies|recompute|reduce [--ranks N] [--family gpt2|llama] [--repeat N] [--build FOLDER]
#
# One thread per rank, two micro-batches of two sequences. Times are the least median of the repeats: a machine that
# does other work only makes them longer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=bench/shape.sh
source bench/shape.sh

usage() {
    sed -n 's/^#     //p' bench/variants.sh >&2
    exit 2
}

ranks=2 family=gpt2 steps=5 repeat=3 build=build subject=${1:-}
shift || usage
while [[ $# -gt 0 ]]; do
    [[ $# -ge 2 ]] || usage
    case $1 in
    --ranks) ranks=$2 ;;
    --family) family=$2 ;;
    --repeat) repeat=$2 ;;
    --build) build=$2 ;;
    *) usage ;;
    esac
    shift 2
done
[[ $ranks =~ ^[1-9][0-9]*$ && $repeat =~ ^[1-9][0-9]*$ ]] || usage
shape_of_family || usage

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

plan_bytes() { # OVERRIDE ...
    "$build/fsdp_train" "$folder/config.ini" --plan --ranks "$ranks" "$@" |
        sed -nE 's/^ +arena .*\(([0-9]+) bytes.*/\1/p'
}

# Budgets between what recomputing everything needs and what keeping everything needs.
memory_variants() {
    local most least part
    most=$(plan_bytes train.micro_batch=2 shard.recompute=none)
    least=$(plan_bytes train.micro_batch=2 shard.recompute=block)
    for part in 3 2 1 0; do
        variants+=("shard.recompute=memory shard.memory=$((least + (most - least) * part / 4))")
    done
}

write_run
case $subject in
strategies) variants=(shard.strategy=none shard.strategy=optimizer shard.strategy=gradients shard.strategy=full) ;;
reduce) variants=("shard.strategy=full" "shard.strategy=full shard.reduce=reproducible") ;;
recompute)
    variants=(shard.recompute=none shard.recompute=attention shard.recompute=block)
    memory_variants
    ;;
*) usage ;;
esac

step_seconds() { # OVERRIDE ...
    local launcher=(mpirun -np "$ranks" --oversubscribe --bind-to none)
    [[ $ranks -gt 1 ]] || launcher=()
    rm -rf "$folder/out"
    "${launcher[@]}" "$build/fsdp_train" "$folder/config.ini" train.micro_batch=2 "$@" < /dev/null > /dev/null
    median_of seconds
}

declare -A best
for ((turn = 0; turn < repeat; turn++)); do
    for variant in "${variants[@]}"; do
        # shellcheck disable=SC2086 # a variant is several arguments
        seconds=$(step_seconds $variant)
        best[$variant]=$(awk -v a="${best[$variant]:-1e9}" -v b="$seconds" 'BEGIN {print a < b ? a : b}')
    done
done

echo "$family, $ranks ranks, least of $repeat turns, against ${variants[0]}"
printf '%-60s %14s %10s %10s\n' variant "planned, MB" "step, s" "speed"
for variant in "${variants[@]}"; do
    # shellcheck disable=SC2086
    bytes=$(plan_bytes train.micro_batch=2 $variant)
    awk -v name="$variant" -v bytes="$bytes" -v first="${best[${variants[0]}]}" -v own="${best[$variant]}" \
        'BEGIN {printf "%-60s %14.1f %10.3f %10.3f\n", name, bytes / 1e6, own, first / own}'
done
