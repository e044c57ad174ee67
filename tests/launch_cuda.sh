#!/usr/bin/env bash
# Training on GPUs, simulated (tests/simcuda): fsdp_train itself with its CUDA device, cuBLASLt and NCCL, against golden/
# and against the CPU, under seeds that pick the order in which everything queued happens. Arguments: the build folder;
# "all" for 20 seeds and the larger golden cases, which takes long.
set -uo pipefail
# shellcheck source=tests/support/launch.sh
source "$(dirname "$0")/support/launch.sh"
# shellcheck source=tests/support/parity.sh
source "$tests/support/parity.sh"
programs=$build/simulated # fsdp_train beside the simulated device
if [[ ${2:-} == all ]]; then
    seeds=$(seq 20) golden_cases=' gpt2-tiny gpt2-tied llama-tied ' patience=1200
else
    seeds='1 2' golden_cases=' gpt2-tiny '
fi

same_run() { # FOLDER FOLDER
    cmp <(numbers "$1") <(numbers "$2") && cmp "$1/model/model.safetensors" "$2/model/model.safetensors"
}

differ() { # FOLDER FOLDER
    ! cmp -s "$1/model/model.safetensors" "$2/model/model.safetensors"
}

# ---- golden values: how near is near enough, in fp32 and with 16-bit storage, and why, says tool_compare.c ----

golden_case() { # CASE
    local ranks storage counts='1 2 4'
    [[ $golden_cases == *" $1 "* ]] || return
    [[ $1 != llama-tied ]] || counts='1 2 3' # its 12 windows are six micro-batches
    for ranks in $counts; do
        golden_run "$1" "$ranks" ''
        for storage in bf16 fp16; do
            [[ ! -e $golden/$1-$storage.json ]] ||
                golden_run "$1" "$ranks" "$golden/$1-$storage.json" precision.compute=$storage
        done
    done
}

SIMCUDA_SEED=7 for_each_case golden_case

# ---- strategies, ranks, seeds: the same bits, and the CPU's losses ----

losses_agree() { # FOLDER FOLDER TOLERANCE: relative
    paste <(numbers "$1" | grep loss) <(numbers "$2" | grep loss) | sed 's/"loss": *//g' | awk -v allowed="$3" '
        { difference = ($1 - $2) / $2; if (difference > allowed || difference < -allowed) { print; bad = 1 } }
        END { exit bad || NR == 0 }'
}

on_gpus() { # RANKS FOLDER OVERRIDE ...: under every seed, with the same bits
    local seed
    rm -rf "$2"
    for seed in $seeds; do
        rm -rf again
        SIMCUDA_SEED=$seed expect "seed $seed, $1 ranks ${*:3}" train "$1" config.ini device.kind=cuda output.folder=again "${@:3}"
        [[ -e $2 ]] || cp -r again "$2"
        expect "seed $seed, $1 ranks ${*:3}: the bits of every seed" same_run "$2" again
    done
}

small_run 2
on_cpu() { # FOLDER OVERRIDE ...
    rm -rf "$1"
    expect "CPU ${*:2}" train 1 config.ini output.folder="$1" "${@:2}"
}
batch=train.global_batch=4

# Sums in the order of ranks: the bits of one rank at every number of them, in every strategy.
on_cpu cpu $batch
on_gpus 1 one $batch shard.reduce=reproducible
expect 'fp32: the losses of the CPU' losses_agree one cpu 5e-7
for settings in '2 shard.strategy=full' '2 shard.strategy=gradients' '2 shard.strategy=none' '4 shard.strategy=full' \
    '4 shard.strategy=optimizer shard.recompute=block' '4 shard.group=2 shard.prefetch=3'; do
    # shellcheck disable=SC2086 # several words
    on_gpus ${settings%% *} several $batch shard.reduce=reproducible ${settings#* }
    expect "the bits of one rank: $settings" same_run one several
done

# Steps from the second on are replayed as one graph, unless that is switched off.
on_gpus 2 plain $batch shard.reduce=reproducible device.graph=no
expect "the bits of one rank without graphs" same_run one plain

# Matmuls that take gelus and sum bias gradients, or kernels of their own; in fp32 gelus stay apart.
for storage in fp32 bf16; do
    gpt2="$batch model.family=gpt2 precision.compute=$storage"
    allowed=5e-7
    [[ $storage == fp32 ]] || allowed=1e-3
    # shellcheck disable=SC2086 # several words
    {
        on_cpu cpu $gpt2
        on_gpus 2 fused $gpt2 shard.reduce=reproducible
        seeds=1 on_gpus 1 whole $gpt2 shard.reduce=reproducible
        seeds=1 on_gpus 2 apart $gpt2 shard.reduce=reproducible device.fuse=no
        seeds=1 SIMCUDA_EPILOGUES=bias on_gpus 2 without $gpt2 shard.reduce=reproducible
    }
    expect "fused, $storage: the bits of one rank" same_run whole fused
    expect "fused, $storage: the losses of the CPU" losses_agree fused cpu $allowed
    expect "not fused, $storage: the losses of the CPU" losses_agree apart cpu $allowed
    expect "fused or not, $storage: bits differ" differ fused apart
    expect "not fused where cuBLASLt has no algorithm, $storage" same_run apart without
done

# Sums in NCCL's order, odd numbers of ranks, 16-bit storage and what travels in it.
on_gpus 3 three train.global_batch=6
on_cpu cpu train.global_batch=6
expect 'three ranks: the losses of the CPU' losses_agree three cpu 5e-7
for storage in bf16 fp16; do
    on_cpu cpu $batch precision.compute=$storage
    on_gpus 2 several $batch precision.compute=$storage precision.communicate=bf16 shard.keep_gathered=yes
    # A logit is off by a rounding to the storage, here and there another one; a loss is the mean over many.
    expect "$storage: the losses of the CPU" losses_agree several cpu 1e-3
done

# Ranks that share a GPU: what they exchange goes through the host's memory, with the sums of the CPU.
SIMCUDA_DEVICES=1 on_gpus 2 shared $batch device.share=yes shard.reduce=reproducible
expect 'two ranks on one GPU: the bits of one rank' same_run one shared
expect 'and a warning' grep -q 'warning: ranks share a GPU' stderr

# ---- checkpoints: copied to pinned memory, and written while training goes on ----

saved() { # FOLDER OVERRIDE ...
    rm -rf "$1"
    train 2 config.ini device.kind=cuda output.folder="$1" $batch shard.reduce=reproducible output.checkpoint_every=1 "${@:2}"
}
same_states() { # FOLDER FOLDER: the files of all checkpoints
    (cd "$1/checkpoints" && sha256sum -- step-0000000[12]/*.bin) | (cd "$2/checkpoints" && sha256sum --check --quiet)
}
SIMCUDA_PINNED=100K expect 'checkpoints in the foreground, which pin little' saved foreground output.checkpoint_background=no
for seed in $seeds; do
    SIMCUDA_SEED=$seed expect "seed $seed: checkpoints in the background" saved background
    expect "seed $seed: the same bytes" same_states foreground background
done
rm -r background/checkpoints/step-00000002 background/model
expect 'a run that goes on from one' train 2 config.ini device.kind=cuda output.folder=background $batch shard.reduce=reproducible
expect 'says so' grep -q '"event":"resume","step":1' background/metrics.jsonl
expect 'to the bits of a run that was never stopped' same_run one background
SIMCUDA_PINNED=100K saved refused
expect 'no memory to pin' grep -qE '^fsdp_train: rank [01] \([^)]*\): no memory for the copy of the state that is written to checkpoints: cudaHostAlloc: this machine has no [0-9.]* MB of memory to pin; set \[output\] checkpoint_background = no' stderr

# ---- ranges for profilers ----

# Profilers see for which unit and operation something is queued: nested ranges (NVTX), and in a step no work outside.
work_in_ranges() { # FILE: of steps that are queued and captured
    awk '
        function fail(why) { print why ": " $0; bad = 1 }
        { depth = (match($0, /[^ ]/) - 1) / 4 }
        $1 == "range" && depth > 1 { fail("deeper than unit and operation") }
        $1 == "range" { name[depth] = substr($0, index($0, "range") + 6) }
        $1 == "work" && depth == 1 { fail("in no operation") }
        $1 == "work" && depth == 2 { works++; seen[name[0] ", " name[1]]++ }
        END {
            split("forward embedding, pass 0, embedding|forward block0, pass 0, attention|" \
                  "backward block1, pass 1, norm_backward|update block1, pass 0, adamw", wanted, "|")
            for (i in wanted) if (!(wanted[i] in seen)) { print "no work of " wanted[i]; bad = 1 }
            exit bad || works < 100
        }' "$1"
}
rm -rf one
export SIMCUDA_RANGES=$PWD/ranges
expect 'ranges: run' train 1 config.ini $batch device.kind=cuda output.folder=one
unset SIMCUDA_RANGES
expect 'ranges of units and operations' work_in_ranges ranges
finish
