#!/usr/bin/env bash
# Checkpoints of real runs: going on gives the bits of a run that was never stopped, at the same and at other numbers of
# ranks; what is damaged is passed over, what does not fit refused; a failed write harms nothing; one run per folder.
# Argument: the build folder.
set -uo pipefail
# shellcheck source=tests/support/launch.sh
source "$(dirname "$0")/support/launch.sh"
export OMPI_MCA_odls_base_sigkill_timeout=0

"$build/tool_tokens" tokens.bin 97 3000 tokens16
"$build/tool_tokens" other.bin 97 3100 tokens16
cat > config.ini << 'END'
[model]
family = llama
layers = 3
width = 32
heads = 2
vocabulary = 97
context = 32
[data]
train = tokens.bin
format = tokens16
validation_fraction = 0.1
[train]
steps = 16
global_batch = 24
validate_every = 6
[optimizer]
learning_rate = 1e-2
schedule = cosine
warmup = 5
[shard]
reduce = reproducible
[device]
kind = cpu
threads = 1
[output]
checkpoint_every = 4
keep = 10
END

numbers() { # FOLDER: what steps and validations measured, without times
    grep -E '"event": *"(step|validation)"' "$1/metrics.jsonl" |
        sed -E 's/"(seconds|tokens_per_second|tflops|exposed|compute|imbalance|slowest|exposed_gather|exposed_reduce|idle|memory)":[^,}]*,?//g'
}

same_run() { # FOLDER FOLDER: the same numbers, the same model, the same last state
    diff <(numbers "$1") <(numbers "$2") && cmp "$1/model/model.safetensors" "$2/model/model.safetensors"
}

same_state() { # CHECKPOINT CHECKPOINT, written at the same number of ranks
    (cd "$1" && sha256sum -- *.bin) | (cd "$2" && sha256sum --check --quiet)
}

code_is() {
    [[ $code -eq $1 ]] || { echo "exit code $code, not $1"; return 1; }
}

said() { # TEXT: on standard error, once
    [[ $(grep -cF -- "$1" stderr) -eq 1 ]]
}

copy_until() { # FOLDER STEP [FROM]: FROM (straight), as a run leaves it that was killed after that checkpoint
    rm -rf "$1"
    cp -r "${3:-straight}" "$1"
    rm -rf "$1/model"
    local checkpoint
    for checkpoint in "$1"/checkpoints/*; do
        [[ $((10#${checkpoint##*-})) -le $2 ]] || rm -r "$checkpoint"
    done
    printf '{"event":"step","st' >> "$1/metrics.jsonl"
}

steps_of() {
    (cd "$1/checkpoints" && echo *)
}

# Straight, and the same in parts
train 4 config.ini output.folder=straight
expect "a run with checkpoints" test $? -eq 0
expect "checkpoints of every 4th step" \
    test "$(steps_of straight)" = "step-00000004 step-00000008 step-00000012 step-00000016"

copy_until again 8
train 4 config.ini output.folder=again
expect "goes on at 4 ranks" same_run straight again
expect "to the same state" same_state straight/checkpoints/step-00000016 again/checkpoints/step-00000016
expect "says from where" grep -q '"event":"resume","step":8,"from":"again/checkpoints/step-00000008","ranks":4' again/metrics.jsonl
expect "sets superseded lines aside" grep -q '"event":"superseded","after":8' again/metrics.superseded.jsonl

copy_until chain 4
train 2 config.ini output.folder=chain train.steps=16 shard.strategy=optimizer shard.unit=2 output.checkpoint_every=3 &&
    rm -r chain/checkpoints/step-00000016 chain/checkpoints/step-00000015 && train 8 config.ini output.folder=chain shard.group=2
expect "goes on at 2 ranks, then at 8" same_run straight chain
rm -r chain/checkpoints/step-00000016
train 1 config.ini output.folder=chain shard.strategy=none
expect "goes on at 1 rank" same_run straight chain

# With weights as large as that, gradients overflow fp16 in some steps: the loss scale goes on where it was
train 2 config.ini output.folder=half precision.compute=fp16 model.initialisation=2
expect "the loss scale was halved before step 8" grep -qE '"step":8,.*"loss_scale":(32768|16384|8192|4096)\.0' half/metrics.jsonl
copy_until half-again 8 half
train 4 config.ini output.folder=half-again precision.compute=fp16 model.initialisation=2
expect "fp16 goes on at 4 ranks" same_run half half-again

train 1 config.ini output.folder=chain
expect "nothing left to do" test $? -eq 0
expect "and nothing changed" same_run straight chain

# An orderly stop is one of the moments from which to go on
train_until_stopped() { # OVERRIDE ...
    rm -rf stopped
    "$build/fsdp_train" config.ini output.folder=stopped train.steps=16 "$@" > stdout 2> stderr &
    local job=$!
    until [[ $(grep -cs '"step"' stopped/metrics.jsonl) -gt 5 ]]; do sleep 0.01; done
    kill -TERM $job
    wait $job
}
for every in 4 0; do
    train_until_stopped output.checkpoint_every=$every
    train 2 config.ini output.folder=stopped
    expect "goes on after SIGTERM, checkpoint_every = $every" same_run straight stopped
    expect "from where it was" grep -q '"event":"resume"' stopped/metrics.jsonl
done

# Damage
copy_until damaged 12
printf x | dd of=damaged/checkpoints/step-00000012/shard-00002.bin bs=1 seek=1000 conv=notrunc status=none
rm damaged/checkpoints/step-00000008/shard-00001.bin
train 2 config.ini output.folder=damaged
expect "damaged ones are passed over" same_run straight damaged
expect "the first is named" said 'damaged/checkpoints/step-00000012/shard-00002.bin: bytes 0 to'
expect "the second is named" said 'damaged/checkpoints/step-00000008/shard-00001.bin: cannot open'
expect "they are set aside" test -d damaged/checkpoints/step-00000008.superseded
copy_until damaged 4
: > damaged/checkpoints/step-00000004/manifest.json
for ranks in 1 3; do
    code=0
    train $ranks config.ini output.folder=damaged || code=$?
    expect "without a whole one nothing starts over silently" said 'damaged/checkpoints: no checkpoint is whole'
    [[ $ranks -gt 1 ]] || expect "it is a checkpoint's fault" code_is 4
done
train 2 config.ini output.folder=damaged output.resume=no
expect "resume = no starts over" test "$(steps_of damaged)" = \
    "step-00000004 step-00000004.superseded step-00000008 step-00000012 step-00000016"

# A model from a checkpoint
last=straight/checkpoints/step-00000016
export_to() {
    "$build/fsdp_export" "$@" > stdout 2> stderr
}
export_to $last exported
expect "an export is the model that the run wrote" diff -r exported straight/model
export_to chain/checkpoints/step-00000016 exported
expect "whoever saved the checkpoint" diff -r exported straight/model
for type in bf16 fp16; do
    export_to $last exported-$type --dtype $type
    train 1 config.ini output.folder=from-$type model.from=exported-$type --validate
    expect "an export in $type loads" test $? -eq 0
done
train 1 config.ini output.folder=straight --validate
expect "validation says that without [model] from nothing trained is looked at" grep -qx \
    'fsdp_train: warning: --validate: without \[model\] from the model is untrained; what this config has trained is model.from=straight/model' stderr
train 1 config.ini output.folder=bf16 output.model_dtype=bf16 output.resume=$last
expect "an export in bf16 is that of the run" diff -r exported-bf16 bf16/model
export_to $last --verify
expect "a whole one: code 0" test $? -eq 0
expect "and silence" test ! -s stdout -a ! -s stderr
export_to $last --list
expect "a list" grep -q '^    block0.attention.qkv  *96 x 32, [1-4] pieces*$' stdout
mkdir occupied
touch occupied/mine
export_to $last occupied
expect "no folder of other files is replaced" said 'fsdp_export: occupied: holds files and is no model folder; give a new folder, or an empty one'
printf x | dd of=$last/shard-00003.bin bs=1 seek=5000 conv=notrunc status=none
for what in "--verify" "broken"; do
    code=0
    export_to $last $what || code=$?
    expect "$what of a damaged one" code_is 4
    expect "$what says where" said "fsdp_export: $last/shard-00003.bin: bytes 0 to "
done
expect "and writes nothing" test ! -e broken

# What changes the mathematics
refused() { # TEXT OVERRIDE ...
    copy_until refused 8
    code=0
    train 1 config.ini output.folder=refused "${@:2}" || code=$?
    expect "$*: code" code_is 4
    expect "$*: message" said "fsdp_train: refused/checkpoints/step-00000008: cannot go on from here: $1"
}
refused 'model.width was 32, now it is 64; use the same, or another [output] folder' model.width=64
refused 'data.files was [{"name":"tokens.bin"' data.train=other.bin
refused 'train.seed was 1, now it is 2; use the same, or go on all the same with [output] accept = data' train.seed=2
refused 'train.global_batch was 24, now it is 12; use the same, or go on all the same with [output] accept = batch' train.global_batch=12
refused 'train.sequence was 32, now it is 16; use the same, or go on all the same with [output] accept = sequence' train.sequence=16
train 2 config.ini output.folder=refused train.global_batch=12 train.sequence=16 'output.accept=batch sequence'
expect "accepted, it goes on where it was in the data" \
    grep -qE '"step":9,.*"tokens":'$((8 * 24 * 32 + 12 * 16)), refused/metrics.jsonl
train 1 config.ini output.folder=refused output.resume=refused/nowhere
expect "a checkpoint that is not there" said 'refused/nowhere/manifest.json: cannot open: No such file or directory; expected is a checkpoint, a folder like'
copy_until refused 8
train 1 config.ini output.folder=refused train.steps=7
expect "beyond the last step" said 'the checkpoint refused/checkpoints/step-00000008 is of step 8 already; give more steps than that, or another [output] folder'
finish
