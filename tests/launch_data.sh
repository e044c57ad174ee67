#!/usr/bin/env bash
# Training data through the real program: how files are cut makes no difference, validation is the same at any number of
# ranks, and every mistake ends all ranks with one line and exit code 3, before anything is written.
set -euo pipefail
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

train() { # RANKS [section.key=value ...]
    local ranks=$1
    shift
    if [[ $ranks -eq 1 ]]; then
        "$build/fsdp_train" config.ini "$@"
    else
        mpirun -np "$ranks" --oversubscribe --bind-to none "$build/fsdp_train" config.ini "$@" < /dev/null
    fi
}

# Losses of an event, one a line.
losses() { # EVENT FILE
    grep "\"event\": *\"$1\"" "$2" | sed -E 's/.*"loss": *([-+.0-9eE]+).*/\1/'
}

cat > config.ini << END
[model]
family = llama
layers = 1
width = 16
heads = 2
vocabulary = 128
context = 8
[data]
train = text
[train]
steps = 4
global_batch = 6
sequence = 8
END

for i in {1..60}; do printf 'line %d of a text that is cut into pieces\n' "$i"; done > text
size=$(stat -c %s text)

# ---- however the bytes are cut into files ----

head -c 1001 text > piece1
tail -c +1002 text | head -c 3 > piece2 # shorter than a window: files of a stream are laid end to end
tail -c +1005 text > piece3
train 1 output.folder=whole > /dev/null
train 2 output.folder=pieces 'data.train=piece*' > /dev/null
[[ $(losses step whole/metrics.jsonl | wc -l) -eq 4 ]] || fail "no losses"
# Two ranks add up gradients in another order than one: rounding of fp32, far below what another batch would change.
paste <(losses step whole/metrics.jsonl) <(losses step pieces/metrics.jsonl) |
    awk '{ d = $1 / $2 - 1; if (d > 1e-6 || d < -1e-6) exit 1 }' || fail "pieces train otherwise than the whole"

# ---- validation: the same number at any number of ranks, padding not counted ----

for ranks in 1 2 3; do
    train "$ranks" output.folder="validation$ranks" data.validation_fraction=0.2 train.validate_every=2 \
        train.validation_batches=9 > /dev/null
done
[[ $(losses validation validation1/metrics.jsonl | wc -l) -ge 2 ]] || fail "no validation losses"
paste <(losses validation validation1/metrics.jsonl) <(losses validation validation2/metrics.jsonl) \
    <(losses validation validation3/metrics.jsonl) |
    awk '{ a = $1 / $2 - 1; b = $1 / $3 - 1; if (a * a > 1e-12 || b * b > 1e-12) exit 1 }' ||
    fail "validation differs between 1, 2 and 3 ranks"

# ---- mistakes ----

refused() { # "RANKS ..." MESSAGE [section.key=value ...]
    local message="fsdp_train: $2" list=$1 ranks result
    shift 2
    for ranks in $list; do
        result=0
        timeout 20 bash -c "$(declare -f train); build='$build'; train $ranks \"\$@\"" train output.folder=refused "$@" \
            > stdout 2> stderr || result=$?
        [[ $result -eq 3 ]] || { cat stderr >&2; fail "$*, $ranks ranks: ended with $result, not 3"; }
        if [[ $(cat stdout stderr | grep -cP '^fsdp_train: (?!warning:)') -ne 1 ]] || ! grep -qxF "$message" stderr; then
            cat stdout stderr >&2
            fail "$*, $ranks ranks: expected once: $message"
        fi
        [[ ! -e refused ]] || fail "$*, $ranks ranks: left an output folder"
    done
}

: > empty
printf 'short' > short
mkdir folder
magic() { printf '\x88\xd8\x34\x01\x01\0\0\0\x09\0\0\0'; } # 20240520, version 1, 9 tokens
{ magic; head -c 1012 /dev/zero; head -c 10 /dev/zero; } > truncated
{ printf '\x89'; magic | tail -c +2; head -c 1012 /dev/zero; head -c 18 /dev/zero; } > wrong
{ magic; head -c 1012 /dev/zero; head -c 16 /dev/zero; printf '\x80\0'; } > large

refused "1 3" "[data] train: none: No such file or directory; relative paths start at the directory that the program is \
started in" data.train=none
refused "1" "[data] train: none*: matches no file" 'data.train=none*'
refused "1" "[data] train: empty: is empty" data.train=empty
refused "1" "[data] train: folder: is a directory; name the files in it, for example as folder/*" data.train=folder
refused "1" "[data] train: short: 5 tokens; a window of [train] sequence = 8 needs 9" data.train=short
refused "1 3" "[data] train: truncated: has 1034 bytes, but its header counts 9 tokens of 2 bytes, which makes 1042; the \
file is truncated or damaged" data.train=truncated
refused "1" "[data] train: wrong: neither text nor a token file: its header starts with 20240521 where 20240520 (16 bits) \
or 20240801 (32 bits) is expected; for files without a header set [data] format" data.train=wrong
refused "1 3" "[data] train: large: token 8 is 128, outside the vocabulary of 128" data.train=large
refused "1" "[data] train: text: byte 0 is 108, outside the vocabulary of 100" model.vocabulary=100
refused "1" "[data] validation: short: 5 tokens; a window of [train] sequence = 8 needs 9" data.validation=short
refused "1" "[data] train: text: without what validation_fraction holds out, $((size - size * 999 / 1000)) tokens; a \
window of [train] sequence = 8 needs 9" data.validation_fraction=0.999

# ---- files that change while they are in use ----

ends_when() { # MESSAGE CHANGE RANKS: a run without end, whose text is changed once it trains, ends with code 3 and the message
    local result=0 job ranks=$3
    cp text live
    rm -rf changing
    timeout 60 bash -c "$(declare -f train); build='$build'; train $ranks output.folder=changing data.train=live \
        train.steps=1000000" > stdout 2> stderr &
    job=$!
    until [[ -s changing/metrics.jsonl && $(wc -l < changing/metrics.jsonl) -gt 3 ]]; do
        kill -0 "$job" || { cat stderr >&2; fail "$2, $ranks ranks: no step"; }
        sleep 0.05
    done
    eval "$2"
    wait "$job" || result=$?
    [[ $result -eq 3 && $(grep -cP '^fsdp_train: (?!warning:)' stderr) -eq 1 ]] && grep -q "^fsdp_train:.*$1" stderr ||
        { cat stderr >&2; fail "$2, $ranks ranks: ended with $result, not 3 and once: $1"; }
    [[ $(tail -n 1 changing/metrics.jsonl) == *'"reason":"error"'* ]] || fail "$2, $ranks ranks: no end in the metrics"
}

for ranks in 1 2; do
    ends_when 'live: cannot be read any more: it was cut off' ': > live' "$ranks"
    ends_when 'is 255, outside the vocabulary of 128; the files were changed' \
        "head -c $size /dev/zero | tr '\\0' '\\377' | dd of=live conv=notrunc status=none" "$ranks"
done

echo "data: all as expected"
