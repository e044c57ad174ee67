#!/usr/bin/env bash
# fsdp_sample from outside: greedy tokens as Hugging Face transformers 5.24 gives them for the same folder (model
# .generate, do_sample=False, the last `context` tokens where there are more), bytes, seeds, and mistakes.
set -uo pipefail
build=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
export OMP_NUM_THREADS=1
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# expect CODE OUTPUT ARGUMENTS...: exit code and standard output
expect() {
    local code=$1 output=$2 found
    shift 2
    found=$("$build/fsdp_sample" "$@" 2>errors)
    local ended=$?
    [ $ended -eq "$code" ] || fail "$*: exit code $ended, expected $code: $(cat errors)"
    [ "$found" == "$output" ] || fail "$*: found '$found', expected '$output'"
}

# refused CODE MESSAGE ARGUMENTS...: the message alone on standard error, nothing on standard output
refused() {
    local code=$1 message=$2
    shift 2
    expect "$code" "" "$@"
    [ "$(cat errors)" == "fsdp_sample: $message" ] || fail "$*: found '$(cat errors)', expected '$message'"
}

"$build/tool_model" gpt2 family=gpt2 layers=2 width=35 heads=5 vocabulary=97 context=65 tied=no feed_forward=50 || exit 1
"$build/tool_model" llama family=llama layers=2 width=33 heads=3 kv_heads=3 head_width=16 feed_forward=50 \
    vocabulary=97 context=128 tied=no rope_theta=500 rope_factor=8 rope_low_frequency_factor=1 \
    rope_high_frequency_factor=4 rope_original_context=32 type=bf16 || exit 1
"$build/tool_model" bytes family=llama layers=1 width=16 heads=2 vocabulary=256 context=32 tied=yes || exit 1

# 80 tokens: past the first window (64) and past GPT-2's context (65).
gpt2="1 2 3 1 81 81 81 22 68 22 47 25 68 81 81 25 68 8 25 25 25 25 68 66 25 25 68 22 68 22 44 22 86 25 25 90 \
47 25 25 68 22 57 25 66 54 77 15 23 25 68 22 90 68 66 25 68 22 47 49 23 15 22 47 25 78 24 61 66 24 61 57 22 \
44 23 24 61 57 22 44 23 24 61 66"
llama="1 2 3 80 29 80 71 51 68 80 77 51 68 68 68 68 68 51 51 51 68 21 51 68 21 94 51 40 21 68 21 94 51 40 21 68 \
21 94 21 94 21 94 21 94 21 94 21 94 21 36 21 94 21 36 21 94 21 36 21 94 21 36 21 94 21 36 21 94 21 94 21 36 \
21 94 21 36 21 94 21 36 21 94 21"
expect 0 "$gpt2" --model gpt2 --prompt "1 2 3" --tokens 80 --temperature 0
note="fsdp_sample: gpt2: the tokenizer of this model can't be read yet: the prompt is taken as token ids, and token ids are printed"
[ "$(cat errors)" == "$note" ] || fail "token ids: standard error was '$(cat errors)'"
expect 0 "$llama" --model llama --prompt "1 2 3" --tokens 80 --temperature 0
expect 0 "$llama" --model llama --prompt "1 2 3" --tokens 80 --top-k 1 --seed 9
expect 0 "5 6" --model gpt2 --prompt " 5, 6 " --tokens 0

# Bytes: the prompt, as many bytes as tokens, a newline; the same seed gives the same ones.
"$build/fsdp_sample" --model bytes --prompt "In the beginning" --tokens 20 --seed 1 >first 2>errors || fail "bytes: $(cat errors)"
"$build/fsdp_sample" --model bytes --prompt "In the beginning" --tokens 20 --seed 1 >again || fail "bytes again"
"$build/fsdp_sample" --model bytes --prompt "In the beginning" --tokens 20 --seed 2 >other || fail "bytes, seed 2"
[ ! -s errors ] || fail "bytes: $(cat errors)"
[ "$(stat -c %s first)" -eq 37 ] || fail "bytes: $(stat -c %s first) bytes"
[ "$(head -c 16 first)" == "In the beginning" ] || fail "the prompt is not repeated"
cmp -s first again || fail "the same seed gave another text"
cmp -s first other && fail "another seed gave the same text"

refused 2 "--model DIR is missing; see fsdp_sample --help"
refused 2 "--prompt TEXT is missing; see fsdp_sample --help" --model bytes
refused 2 "argument --promt: unknown option; did you mean --prompt; see fsdp_sample --help" --promt x
refused 2 "argument --prompt: a value is missing; see fsdp_sample --help" --model bytes --prompt
refused 2 "argument --tokens 1e3: takes a whole number from 0 to 2147483647" --tokens 1e3
refused 2 "argument --temperature -1: takes a number, 0 or more" --temperature -1
refused 2 "argument --prompt: expected at least one token" --model bytes --prompt ""
refused 4 "absent/config.json: cannot open: No such file or directory" --model absent --prompt x
expect 2 "" --model gpt2 --prompt "1 97"
grep -q '^fsdp_sample: argument --prompt: "97" is no token id; expected 0 to 96$' errors || fail "id 97: $(cat errors)"
expect 2 "" --model gpt2 --prompt "1 two"
grep -q '^fsdp_sample: argument --prompt: "two" is no token id; expected 0 to 96$' errors || fail "id two: $(cat errors)"
"$build/fsdp_sample" --help | grep -q -- "--prompt" || fail "--help"

[ $failures -eq 0 ]
