#!/usr/bin/env bash
# Measures a whole training run against its yardsticks, all in one go on this machine, and prints what was measured
# against what:
#
#     bench/training.sh [--ranks N] [--family gpt2|llama] [--steps N] [--build FOLDER]
#
# The run: 6 layers, width 384, 6 heads, vocabulary 50257, 4 sequences of 256 tokens per rank, fp32, AdamW and clip, one
# thread per rank. Speed is model FLOP/s over the best sgemm of oneDNN on as many cores at once, measured before and
# after training, with model FLOPs per token = 6 x matmul parameters (head included) + 6 x layers x heads x head width x
# sequence. Memory is the peak of each rank as the kernel counts it, beside the planned bytes that the run prints and
# what a rank takes with a model of next to nothing. The first step is timed from the start of the launcher to the line
# that reports the step. Ends with 1 when a bar is missed; a machine that does other work as well misses them easily.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck source=bench/shape.sh
source bench/shape.sh
ranks=1 family=gpt2 steps=8 build=build

usage() {
    echo "usage: bench/training.sh [--ranks N] [--family gpt2|llama] [--steps N] [--build FOLDER]" >&2
    exit 2
}

while [[ $# -gt 0 ]]; do
    [[ $# -ge 2 ]] || usage
    case $1 in
    --ranks) ranks=$2 ;;
    --family) family=$2 ;;
    --steps) steps=$2 ;;
    --build) build=$2 ;;
    *) usage ;;
    esac
    shift 2
done
[[ $ranks =~ ^[1-9][0-9]*$ && $steps =~ ^[1-9][0-9]*$ && $steps -gt 1 ]] || usage
shape_of_family || usage
matmul_parameters=$((layers * block_matrices + vocabulary * width))
flops_per_token=$((6 * matmul_parameters + 6 * layers * width * sequence)) # width = heads x head width
case $ranks in
1) bar=0.75 ;;
2) bar=0.70 ;;
*) bar= ;; # none is set
esac

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cores=$((ranks < $(nproc) ? ranks : $(nproc))) # that the ranks work on

best_sgemm() { # GFLOP/s, all these cores together
    "$build/bench_sgemm" --cores "$cores" | awk '$1 == "best" {print $2}'
}

fsdp_train() { # PEAKS [KEY=VALUE ...]: a line for each rank in the file PEAKS
    local launcher=() peaks=$1
    shift
    if [[ $ranks -gt 1 ]]; then
        launcher=(mpirun -np "$ranks")
        [[ $ranks -le $(nproc) ]] || launcher+=(--oversubscribe)
    fi
    "${launcher[@]}" "$build/bench_peak" "$peaks" "$build/fsdp_train" "$folder/config.ini" "$@" < /dev/null
}

# Trains; sets first_step (seconds from here to the line that reports step 1).
run_training() {
    local line begin=$EPOCHREALTIME
    first_step=
    while IFS= read -r line; do
        if [[ -z $first_step && $line == "step 1/"* ]]; then
            first_step=$(awk -v begin="$begin" -v end="$EPOCHREALTIME" 'BEGIN {print end - begin}')
        fi
    done < <(fsdp_train "$folder/peak")
    if [[ -z $first_step ]]; then
        echo "bench/training.sh: fsdp_train reported no step" >&2
        exit 1
    fi
}

verdict() { # CONDITION of awk: prints met or missed, and remembers
    if [[ $(awk "BEGIN {print ($1) ? 1 : 0}") == 1 ]]; then
        verdict=met
    else
        verdict=MISSED missed=1
    fi
}

report_speed() {
    local seconds rate gflops ratio
    seconds=$(median_of seconds)
    rate=$(awk "BEGIN {print $sequences * $sequence * $ranks / $seconds}")
    gflops=$(awk "BEGIN {printf \"%.1f\", $rate * $flops_per_token * 1e-9}")
    ratio=$(awk "BEGIN {s = $before > $after ? $before : $after; printf \"%.3f\", $gflops / s}")
    printf 'step         %.3f s, median of steps 2 to %d: %.0f tokens/s\n' "$seconds" "$steps" "$rate"
    printf 'sgemm        %s GFLOP/s before, %s after, on %d cores at once\n' "$before" "$after" "$cores"
    printf 'model        %s GFLOP/s: %d FLOPs per token (%d matmul parameters)\n' "$gflops" "$flops_per_token" \
        "$matmul_parameters"
    if [[ -z $bar ]]; then
        printf 'ratio        %s of sgemm\n' "$ratio"
    else
        verdict "$ratio >= $bar"
        printf 'ratio        %s of sgemm; bar %s: %s\n' "$ratio" "$bar" "$verdict"
    fi
}

planned_in() { # OUTPUT FOLDER: bytes of a rank
    sed -nE 's/^\{"event": *"start".*"planned_memory": *([0-9]+).*/\1/p' "$1/metrics.jsonl"
}

peak_in() { # PEAKS: bytes of the largest rank
    sort -g "$1" | awk 'END {print $1}'
}

# What a rank has beside its arena, in bytes: that of a model of next to nothing, on as many ranks.
measure_program() {
    fsdp_train "$folder/program_peak" model.layers=1 model.width=$((2 * heads)) model.feed_forward=2 train.sequence=2 \
        train.micro_batch=1 train.global_batch="$ranks" "output.folder=$folder/program" > "$folder/program.log"
    program=$(($(peak_in "$folder/program_peak") - $(planned_in "$folder/program")))
}

report_memory() {
    local planned peak
    planned=$(planned_in "$folder/out")
    peak=$(peak_in "$folder/peak")
    printf 'memory       peak of each rank:'
    awk '{printf " %.1f", $1 / 1e6} END {print " MB"}' "$folder/peak"
    verdict "$peak <= $planned + 60e6"
    awk "BEGIN {printf \"             %.1f MB planned + %.1f; bar planned + 60: $verdict\\n\", $planned / 1e6,
         ($peak - $planned) / 1e6}"
    verdict "$peak <= 1.02 * $planned + $program"
    printf '             the program is %.1f MB; bar 1.02 x planned + program: %s\n' "$((program / 1000))e-3" "$verdict"
    if [[ $family == gpt2 && $ranks == 2 ]]; then
        verdict "$peak <= 700e6"
        printf '             bar 700 MB: %s\n' "$verdict"
    fi
}

report_start() {
    local seconds
    seconds=$(median_of seconds)
    verdict "$first_step <= $seconds + 1"
    printf 'first step   done after %.2f s, one step + %.2f s; bar one step + 1 s: %s\n' "$first_step" \
        "$(awk "BEGIN {print $first_step - $seconds}")" "$verdict"
    awk '{printf "process      %.2f s, of which %.2f in user and %.2f in kernel mode\n", $2, $3, $4}' "$folder/peak"
}

missed=0
write_run
echo "shape        $family, $layers layers, width $width, $heads heads, vocabulary $vocabulary; $ranks x $sequences x $sequence tokens"
before=$(best_sgemm)
run_training
after=$(best_sgemm)
measure_program
report_speed
report_memory
report_start
exit "$missed"
