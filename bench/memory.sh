#!/usr/bin/env bash
# Memory per rank by strategy and number of ranks, as planned, beside the formulas of the ZeRO paper (Rajbhandari et al.,
# "ZeRO: Memory optimizations toward training trillion parameter models", 2020, figure 1) for fp32: parameters 4,
# gradients 4 and optimizer states 8 bytes each, divided by the ranks where they are sharded. Model states are master
# weights, moments, gathered parameters and gradients at the step's peak; what is gathered for a moment, flat gradients
# on their way, and padding are what they have above the formula. Sequences of 1,024 tokens, one to a rank.
#
# Arguments: the build folder (build), then presets (llama-3.2-1b llama-3.1-8b llama-3.1-70b).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:-build}
shift || true
presets=("$@")
[[ ${#presets[@]} -gt 0 ]] || presets=(llama-3.2-1b llama-3.1-8b llama-3.1-70b)

config=$(mktemp --suffix .ini)
trap 'rm -f "$config"' EXIT
printf '[data]\ntrain = unused\n[train]\nsteps = 1\nglobal_batch = 1\nsequence = 1024\n' > "$config"

plan() { # PRESET STRATEGY RANKS: the head of the plan
    "$build/fsdp_train" "$config" --plan --ranks "$3" "model.preset=$1" "shard.strategy=$2" "train.global_batch=$3" |
        sed -n '1,/^program/p'
}

row='
function megabytes(line) { match(line, /[0-9.]+ MB/); return substr(line, RSTART, RLENGTH) + 0 }
/^model/ { match($0, /[0-9.]+ million/); parameters = substr($0, RSTART, RLENGTH) + 0 }
/master weights|moments|gathered parameters|flat gradients|gradient shard/ { states += megabytes($0) }
/activations/ { activations = megabytes($0) }
/ arena / { arena = megabytes($0) }
END {
    share["full"] = 16 / ranks; share["gradients"] = 4 + 12 / ranks
    share["optimizer"] = 8 + 8 / ranks; share["none"] = 16
    printf "%-14s %-10s %6d %14.0f %14.0f %14.0f %14.0f\n", preset, strategy, ranks, states,
        parameters * share[strategy], activations, arena
}'

printf '%-14s %-10s %6s %14s %14s %14s %14s\n' model strategy ranks "states, MB" "ZeRO, MB" "activations" "arena, MB"
for preset in "${presets[@]}"; do
    for strategy in none optimizer gradients full; do
        for ranks in 1 8 64 1024; do
            plan "$preset" "$strategy" "$ranks" |
                awk -v preset="$preset" -v strategy="$strategy" -v ranks="$ranks" "$row"
        done
    done
done
