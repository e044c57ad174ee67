#!/usr/bin/env bash
# What a user may get wrong, through the real program at one rank and at several: refused within seconds, with the exact
# text, once, with the documented exit code, before anything is written. Argument: the build folder.
set -uo pipefail
# shellcheck source=tests/support/launch.sh
source "$(dirname "$0")/support/launch.sh"
export OMPI_MCA_odls_base_sigkill_timeout=0 # nothing to save: the launcher need not wait

cat > base.ini << 'END'
[model]
family = llama
layers = 1
width = 32
heads = 4
vocabulary = 97
context = 32

[data]
train = tokens.bin
format = tokens16

[train]
steps = 2
global_batch = 12

[device]
kind = cpu
threads = 1
END
"$build/tool_tokens" tokens.bin 97 3000 tokens16
"$build/tool_tokens" large.bin 200 3000 tokens16
"$build/tool_tokens" header.bin 97 3000 tokens16 header
"$build/tool_model" model family=llama layers=1 width=32 heads=4 vocabulary=97 context=32 tied=no

# The codes that the ranks themselves end with: the launcher has its own.
cat > rank.sh << 'END'
"$@"
code=$?
echo "$code" >> codes
exit "$code"
END

nothing_written() {
    [[ ! -e out ]] || { find out; return 1; }
}

only_message() { # TEXT: what the program says on standard error, beside warnings and the launcher's own lines;
    # sizes that depend on the machine read N MB, counts that depend on the ranks N
    diff <(echo "fsdp_train: $1") \
        <(grep '^fsdp_train: ' stderr | grep -v '^fsdp_train: warning: ' | sed -E 's/[0-9.]+ MB/N MB/g; s/[0-9]+ (passes|operations)/N \1/g')
}

codes_are() { # CODE: on every rank that got to tell
    [[ -s codes && $(sort -u codes) == "$1" ]] || { echo "exit codes $(sort -u codes)"; return 1; }
}

refused_at() { # RANKS CODE TEXT ARGUMENT ...
    local ranks=$1 code=$2 text=$3 started=$SECONDS launcher=()
    shift 3
    rm -rf out codes
    [[ $ranks -eq 1 ]] || launcher=(mpirun -np "$ranks" --oversubscribe --bind-to none)
    timeout 60 "${launcher[@]}" bash rank.sh "$build/fsdp_train" "$@" > stdout 2> stderr < /dev/null
    expect "$ranks ranks, $*: code $code" codes_are "$code"
    expect "$ranks ranks, $*: message" only_message "$text"
    expect "$ranks ranks, $*: quick" test $((SECONDS - started)) -le 10
    expect "$ranks ranks, $*: nothing written" nothing_written
}

several=2 # 2 and 3 in turn
refused() { # CODE TEXT OVERRIDE ...: base.ini with overrides
    refused_at 1 "$1" "$2" "${config:-base.ini}" output.folder=out "${@:3}"
    refused_at "$several" "$1" "$2" "${config:-base.ini}" output.folder=out "${@:3}"
    several=$((5 - several))
}

override() { # SECTION.KEY VALUE CODE PROBLEM: base.ini with one override, which the message names
    refused "$3" "argument $1=$2: [${1%.*}] ${1#*.}: $4" "$1=$2"
}

edited() { # SED_SCRIPT CODE TEXT: base.ini changed
    sed "$1" base.ini > config.ini
    config=config.ini refused "${@:2}"
}

spoiled() { # TEXT COMMAND ...: a copy of the model folder, bad/, that the command spoils
    rm -rf bad
    cp -r model bad
    (cd bad && "${@:2}")
    config=from.ini refused 4 "$1" model.from=bad
}
sed '2,7d' base.ini > from.ini

# The command line
refused_at 1 2 'no config file given; type fsdp_train config.ini, or fsdp_train --help'
refused_at 2 2 'argument --pan: unknown option; did you mean --plan?' base.ini --pan
refused_at 3 2 'nothing.ini: cannot open the config file: No such file or directory' nothing.ini

# The config file
edited 's/^global_batch/micro_bacth/' 2 'config.ini:15: [train] micro_bacth: unknown key; did you mean micro_batch?'
edited 's/^\[train\]/[trian]/' 2 'config.ini:13: [trian]: unknown section; did you mean [train]?'
edited 's/^global_batch/steps/' 2 'config.ini:15: [train] steps = 12: given twice; first in config.ini:14'
edited 's/^steps.*/steps = many/' 2 'config.ini:14: [train] steps = many: wrong type; accepted is a whole number, 1 to 2147483647'
edited 's/^steps.*/steps = 0/' 2 'config.ini:14: [train] steps = 0: out of range; accepted is a whole number, 1 to 2147483647'
edited 's/^steps.*//' 2 'config.ini: [train] steps: required key is missing; accepted is a whole number, 1 to 2147483647'
edited 's/^threads.*/&\nnonsense/' 2 'config.ini:20: nonsense: neither [section] nor key = value'
edited 's/^heads.*/heads = 5/' 2 'config.ini:5: [model] heads = 5: does not divide width 32; 4 and 8 would do'
sed 's/^global_batch.*/global_batch = 13\nmicro_batch = 6/' base.ini > config.ini
for ranks in "1 ranks; 12 and 18" "3 ranks; 18"; do
    refused_at "${ranks%% *}" 2 \
        "config.ini:15: [train] global_batch = 13: not a multiple of micro_batch 6 x $ranks would do" config.ini
done
override model.kv_heads 3 2 'does not divide heads 4; 2 and 4 would do'
override train.sequence 33 2 "longer than the model's context, 32"
override train.global_batch 1200000 2 'takes N passes a step, of about N operations each; a step may have 2097152 in all; a larger micro_batch or more ranks make fewer passes'
override precision.compute fp8 2 'not built yet; built is fp32 | tf32 | bf16 | fp16'
refused 2 'argument output.folder=other: [output] folder: given twice; first in argument output.folder=out' \
    output.folder=other

# The data
refused 3 '[data] train: nowhere.bin: No such file or directory; relative paths start at the directory that the program is started in' \
    data.train=nowhere.bin
refused 3 '[data] train: no*.bin: matches no file' 'data.train=no*.bin'
touch empty.bin
refused 3 '[data] train: empty.bin: is empty' data.train=empty.bin
head -c 64 tokens.bin > short.bin
refused 3 '[data] train: short.bin: 32 tokens; a window of [train] sequence = 32 needs 33' data.train=short.bin
refused 3 '[data] train: header.bin: has a header (20240520), but [data] format = tokens16 is for files without one; use auto' \
    data.train=header.bin
head -c 3000 header.bin > truncated.bin
refused 3 '[data] train: truncated.bin: has 3000 bytes, but its header counts 3000 tokens of 2 bytes, which makes 7024; the file is truncated or damaged' \
    data.train=truncated.bin data.format=auto
{ printf '\001\002\003\004'; tail -c +5 header.bin; } > magic.bin
refused 3 '[data] train: magic.bin: neither text nor a token file: its header starts with 67305985 where 20240520 (16 bits) or 20240801 (32 bits) is expected; for files without a header set [data] format' \
    data.train=magic.bin data.format=auto
head -c 3001 tokens.bin > odd.bin
refused 3 '[data] train: odd.bin: has 3001 bytes, no multiple of the 2 bytes of a token in tokens16' data.train=odd.bin
refused 3 '[data] train: large.bin: token 10 is 135, outside the vocabulary of 97' data.train=large.bin
refused 3 '[data] train: model: is a directory; name the files in it, for example as model/*' data.train=model

# Model files
claim_too_much() {
    printf '\377\377\377\377\377\377\377\377' | dd of=model.safetensors conv=notrunc status=none
}
replace() { # FIRST WITH: as long as each other, so that the file stays as it is otherwise
    LC_ALL=C sed -i "s/$1/$2/" model.safetensors
}
file=model.safetensors
spoiled "bad/$file: the header claims 18446744073709551615 bytes; the file has 91960 after its length, and 100000000 are the limit" \
    claim_too_much
spoiled "bad/$file: the header claims 1208 bytes; the file has 992 after its length, and 100000000 are the limit" \
    truncate -s 1000 $file
spoiled "bad/$file: tensor lm_head.weight: data_offsets [78336, 90752] leave the file's 90748 data bytes" truncate -s -4 $file
spoiled "bad/$file: tensor model.embed_tokens.weight: dtype I32; expected F32, BF16, F16 or F64" replace '"F32"' '"I32"'
spoiled "bad/$file: no tensor model.norm.weight" replace 'model.norm.weight' 'model.norn.weight'
spoiled "bad/$file: tensor model.embed_tokens.weight: shape [32, 97]; expected [97, 32]" replace '\[97,32\]' '[32,97]'
spoiled "bad/$file: tensor model.embed_tokens.weight: data_offsets hold 12416 bytes; its type and shape need 12028" \
    replace '\[97,32\]' '[97,31]'
spoiled "bad/$file: the header is not valid JSON: ']' expected near ':'" replace '{' '['
spoiled "bad/$file: tensor model.layers.0.input_layernorm.weight overlaps tensor model.embed_tokens.weight" \
    replace '\[12416,12544\]' '[12412,12540]'
spoiled 'bad: found neither model.safetensors nor model.safetensors.index.json' rm $file
spoiled 'bad/config.json: cannot open: No such file or directory' rm config.json
spoiled 'bad/config.json: expected a file' eval 'rm config.json; mkdir config.json'
spoiled 'bad/config.json: hidden_act: found "relu"; this changes the mathematics and only "silu" is built' \
    sed -i 's/"silu"/"relu"/' config.json
config=from.ini refused 2 'argument model.width=64: [model] width: model says 32; drop the key or correct it' \
    model.from=model model.width=64

# What the machine can't do
touch file
for ranks in 1 2; do
    refused_at "$ranks" 2 '[output] folder = file/out: cannot make the folder: Not a directory' base.ini output.folder=file/out
done
refused_at 1 2 "base.ini: [shard] memory = auto: this machine has N MB to give to each of its ranks, and with everything recomputed one needs N MB; use more machines, a smaller train.micro_batch or a smaller model" \
    base.ini --plan --ranks 12000 train.global_batch=12000 shard.recompute=memory
too_large='N MB), which has N MB to give; use more machines, a smaller train.micro_batch or a smaller model'
too_large="the plan needs N MB on this machine (ranks x $too_large"
refused_at 1 2 "${too_large/ranks/1 rank}" base.ini output.folder=out model.width=65536 model.layers=4
refused_at 3 2 "rank 0 ($(hostname)): ${too_large/ranks/3 ranks}" base.ini output.folder=out model.width=65536 model.layers=4
finish
