#!/usr/bin/env bash
# What this program does on the GPUs of this machine, in under ten minutes with the build, as one report:
#
#     bench/gpu.sh [--build FOLDER] [--report FILE] [--rehearse]
#
# Correctness comes first: each kernel and matmul on the device against the CPU reference, golden losses and weights
# at one rank and on all GPUs, two ranks on one GPU. Then rates: GB/s and TFLOP/s of each kind of operation beside the
# GPU's limits, of collectives beside what the links let rings carry, step time and MFU of published models on all GPUs,
# with the CUDA graph of a whole step and, once, without.
# A part that fails, or takes too long, does not stop the next; the report ends with a line for each, and the script
# with 1 if one has failed.
#
# Needs nvcc, NCCL and what launch/install.sh installs. --rehearse needs no GPU: it runs every part but the build's
# nvcc on the simulated one (FOLDER/simulated, in every build) with tiny models; its rates mean nothing.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

build=build-gpu report=gpu-report.txt rehearse=
most_seconds=590

usage() {
    echo "usage: bench/gpu.sh [--build FOLDER] [--report FILE] [--rehearse]" >&2
    exit 2
}
while [[ $# -gt 0 ]]; do
    case $1 in
    --rehearse) rehearse=yes && shift ;;
    --build | --report)
        [[ $# -ge 2 ]] || usage
        declare "${1#--}=$2"
        shift 2
        ;;
    *) usage ;;
    esac
done

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_odls_base_sigkill_timeout=0 # trainings are measured, not kept: stopped ranks end at once
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if [[ -n $rehearse ]]; then
    programs=$build/simulated gpus=2
elif [[ -n ${CUDA_VISIBLE_DEVICES:-} ]]; then
    programs=$build gpus=$(tr , '\n' <<< "$CUDA_VISIBLE_DEVICES" | wc -l)
else
    programs=$build gpus=$(nvidia-smi -L 2> /dev/null | grep -c '^GPU')
fi
if [[ $gpus -eq 0 ]]; then
    echo "bench/gpu.sh: nvidia-smi lists no GPU; --rehearse needs none" >&2
    exit 1
fi
checks='gpu_kernels gpu_attention gpu_matmul'
summary=() failures=0
: > "$report"

# ---- parts ----

say() {
    echo "$*" | tee -a "$report"
}

part() { # SECONDS NAME COMMAND ...: at most so long. A command is a program, or a function that is exported below
    local limit=$1 name=$2 left=$((most_seconds - SECONDS)) begin=$SECONDS code verdict=ok
    shift 2
    say '' && say "==== $name"
    if [[ $left -lt 5 ]]; then
        say 'skipped: no time is left'
        summary+=("skipped  $name") failures=$((failures + 1))
        return
    fi
    timeout --kill-after=5 "$((limit < left ? limit : left))" bash -c '"$@"' part "$@" 2>&1 | tee -a "$report"
    code=${PIPESTATUS[0]}
    if [[ $code -ne 0 ]]; then
        verdict=FAILED failures=$((failures + 1))
        [[ $code -ne 124 ]] || say "stopped after $((SECONDS - begin)) s"
    fi
    summary+=("$(printf '%-8s %s, %d s' "$verdict" "$name" $((SECONDS - begin)))")
}

machine() {
    date
    git log -1 --format='%h %s' 2> /dev/null
    lscpu | grep 'Model name'
    nvcc --version 2> /dev/null | tail -n 2
    [[ -n $rehearse ]] || nvidia-smi
}

configure() {
    local architectures
    if [[ -n $rehearse ]]; then
        [[ -e $build/CMakeCache.txt ]] || cmake -S . -B "$build" -DFSDP_CUDA=off
        return
    fi
    architectures=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | sort -u | tr -d . | paste -sd ';')
    cmake -S . -B "$build" -DBUILD_TESTING=ON -DFSDP_CUDA=toolkit "-DCMAKE_CUDA_ARCHITECTURES=$architectures"
}

# shellcheck disable=SC2086 # several words
compile() {
    local device=fsdp_cuda
    [[ -z $rehearse ]] || device='simulated_programs fsdp_cuda_simulated'
    if ! { configure && cmake --build "$build" --parallel "$(nproc)" --target \
        fsdp_train bench_gpu bench_collectives $checks tool_model tool_tokens tool_compare $device; } \
        > "$folder/build" 2>&1; then
        tail -n 40 "$folder/build"
        return 1
    fi
    grep -i 'warning' "$folder/build" || echo 'built without warnings'
}

parity() { # CASES RANKS ...
    bash tests/gpu_parity.sh "$build" "$programs" "$@"
}

# ---- training ----

# Starts a training, and stops it when enough steps are measured: the model that it would write takes long.
# Returns fsdp_train's code if it ended by itself, else 0.
train() { # OVERRIDE ...: into $folder/out
    local steps=8 launcher=() process code=0
    rm -rf "$folder/out"
    [[ $gpus -le 1 ]] || launcher=(mpirun -np "$gpus" --oversubscribe --bind-to none)
    "${launcher[@]}" "$programs/fsdp_train" "$folder/config.ini" "$@" > "$folder/stdout" 2> "$folder/stderr" < /dev/null &
    process=$!
    while kill -0 $process 2> /dev/null; do
        if [[ $(grep -c '"event": *"step"' "$folder/out/metrics.jsonl" 2> /dev/null) -ge $steps ]]; then
            kill -s "$([[ $gpus -le 1 ]] && echo KILL || echo TERM)" $process
            wait $process 2> /dev/null
            return 0
        fi
        sleep 0.2
    done
    wait $process || code=$?
    return $code
}

median_of() { # FIELD: of all steps but the first two, which meet new memory and choose algorithms
    sed -nE "s/^\{\"event\": *\"step\".*\"$1\": *([-+.0-9eE]+).*/\1/p" "$folder/out/metrics.jsonl" | tail -n +3 |
        sort -g | awk '{v[NR] = $1} END {if (NR > 0) print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2}'
}

too_large() {
    grep -q "of the GPU's memory" "$folder/stderr"
}

model() { # PRESET MICRO_BATCH SEQUENCE [OVERRIDE ...]
    local recompute small=() peak seconds tflops
    if [[ -n $rehearse ]]; then
        small=(model.layers=2 model.width=64 model.heads=2 model.kv_heads=2 model.head_width=32 model.feed_forward=96
            model.vocabulary=300)
        [[ $1 != gpt2* ]] ||
            small=(model.layers=2 model.width=64 model.heads=2 model.feed_forward=96 model.vocabulary=300)
        set -- "$1" 1 32 "${@:4}"
    fi
    cat > "$folder/config.ini" << CONFIG
[data]
train = "$folder/tokens.bin"
format = tokens16
[train]
steps = 100000
global_batch = $(($2 * gpus))
micro_batch = $2
sequence = $3
[precision]
compute = bf16
[device]
kind = cuda
[output]
folder = "$folder/out"
CONFIG
    [[ -e $folder/tokens.bin ]] || "$build/tool_tokens" "$folder/tokens.bin" 300 2000000 tokens16 || return
    for recompute in none block; do
        train model.preset="$1" shard.recompute=$recompute "${small[@]}" "${@:4}" && break
        too_large || { tail -n 5 "$folder/stderr" && return 1; }
    done
    if too_large; then
        printf '%-14s does not fit, %s tokens a GPU at once: %s\n' "$1" "$2 x $3" \
            "$(grep -m 1 "of the GPU's memory" "$folder/stderr")"
        return 0
    fi
    seconds=$(median_of seconds) tflops=$(median_of tflops)
    peak=$(sed -nE 's/^limits: .* ([0-9.]+) TFLOP.*/\1/p' "$report" | head -n 1)
    printf '%-14s %d GPUs, %s tokens each, recompute %-5s  %8.4f s a step  %10.0f tokens/s  %8.3f TFLOP/s a GPU' "$1" \
        "$gpus" "$2 x $3" $recompute "$seconds" "$(median_of tokens_per_second)" "$tflops"
    [[ -z $peak ]] || awk "BEGIN {printf \"  MFU %.3f of %g TFLOP/s\", $tflops / $peak, $peak}"
    echo "  ${*:4}"
}

rates() { # ARGUMENT ...
    [[ -z $rehearse ]] || set -- "$@" --layers 1 --width 128 --vocabulary 500 --sequences 1 --sequence 48 --repeats 1
    "$programs/bench_gpu" "$@"
}

# 16 MB a rank: the buffers on the host are to fit, too.
collectives() {
    local sizes=(--largest 16384)
    [[ -z $rehearse ]] || sizes=(--largest 64 --turns 2)
    if [[ $gpus -le 1 ]]; then
        echo 'one GPU: nothing to exchange'
        return
    fi
    mpirun -np "$gpus" --oversubscribe --bind-to none "$programs/bench_collectives" "${sizes[@]}"
}

# ---- all of it ----

export build report programs gpus rehearse folder checks
export -f machine configure compile parity rates collectives model train median_of too_large
counts=(1) cases='gpt2-tied llama-untied'
[[ -z $rehearse ]] || cases=gpt2-tiny
for count in 2 4; do
    [[ $count -gt $gpus ]] || counts+=("$count")
done

say "bench/gpu.sh: $gpus ${rehearse:+simulated }GPUs"
part 20 'machine' machine
part 300 'build' compile
for check in $checks; do
    part 90 "$check: the device against the CPU reference" "$programs/$check"
done
part 150 "golden losses and weights at ${counts[*]} ranks, and two ranks on one GPU" \
    parity "$cases" "${counts[@]}"
part 45 'rates: gpt2, bf16' rates --layers 2 --sequences 16 --compute bf16
part 45 'rates: gpt2, bf16, gelus and bias gradients apart from matmuls' \
    rates --layers 2 --sequences 16 --compute bf16 --fuse no
part 45 'rates: llama-3.2-1b, bf16' rates --model llama-3.2-1b --layers 2 --sequences 4 --sequence 2048 --compute bf16
part 45 'rates: gpt2, tf32' rates --layers 2 --sequences 8 --compute tf32
part 60 'collectives: NCCL, and ranks on the host' collectives
part 60 'training: gpt2' model gpt2 16 1024
part 60 'training: gpt2, each operation queued instead of one CUDA graph' model gpt2 16 1024 device.graph=no
part 60 'training: llama-3.2-1b' model llama-3.2-1b 4 2048
part 60 'training: gpt2-medium' model gpt2-medium 8 1024
part 60 'training: gpt2-xl' model gpt2-xl 4 1024
part 90 'training: llama-3.2-3b' model llama-3.2-3b 2 2048

say '' && say "==== summary, after $SECONDS s"
printf '%s\n' "${summary[@]}" | tee -a "$report"
echo "written to $report"
[[ $failures -eq 0 ]]
