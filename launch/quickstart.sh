#!/usr/bin/env bash
# From a fresh clone to a trained language model, on two processes that share its parameters: installs what is missing,
# builds, gets a text, trains, and lets the model write. What is done already is skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

config=launch/configs/quickstart.ini
out=out/quickstart
text=$out/bible.txt
model=$out/model
metrics=$out/metrics.jsonl

say() {
    printf '==> %s\n' "$*"
}

get_text() {
    [[ ! -s $text ]] || return 0
    say "Getting the text: the King James Bible, 4.4 MB, into $text"
    mkdir -p "$out"
    if ! command -v bible > /dev/null; then
        echo "The text comes from the Debian package bible-kjv, which is not installed. Install it, or put any plain" >&2
        echo "English text of a few megabytes at $text, and start again." >&2
        exit 1
    fi
    bible -f gen1:1-rev22:21 > "$text.part" # a verse per line
    mv "$text.part" "$text"
}

build() {
    say "Building (build/)"
    mkdir -p build
    cmake -S . -B build > build/configure.log 2>&1 || { cat build/configure.log >&2; exit 1; }
    cmake --build build --parallel "$(nproc)" --target fsdp_train fsdp_sample
}

# The last run ended by itself, and neither the config nor the text has changed since.
is_trained() {
    [[ -f $model/model.safetensors && $model/model.safetensors -nt $config && $model/model.safetensors -nt $text ]] &&
        tail -n 1 "$metrics" 2> /dev/null | grep -q '"reason": *"finished"'
}

train() {
    if is_trained; then
        say "Trained already; to train again: rm -r $out"
        return
    fi
    say "Training on 2 processes, as $config says"
    # Open MPI refuses root unless told twice. After Ctrl-C it waits this many seconds, tells the ranks, and waits as
    # long again, whether or not they have ended, before it kills them: time to save, yet not long.
    if [[ $EUID -eq 0 ]]; then
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    fi
    export OMPI_MCA_odls_base_sigkill_timeout=5
    # --oversubscribe only matters where there is a single core.
    mpirun -np 2 --bind-to none --oversubscribe build/fsdp_train "$config" < /dev/null
}

show() {
    local loss
    loss=$(grep '"event": *"validation"' "$metrics" | tail -n 1 | sed -E 's/.*"loss": *([-+.0-9eE]+).*/\1/')
    awk -v loss="$loss" 'BEGIN {
        printf "==> Validation loss %.4f: %.2f bits per character of text it has not seen\n", loss, loss / log(2)
    }'
    say 'It writes, after "In the beginning":'
    build/fsdp_sample --model "$model" --prompt "In the beginning" --tokens 400 --temperature 0.5
    echo
    say "The model is a Hugging Face folder: $model"
    echo
    echo "Next:"
    if [[ $EUID -eq 0 ]]; then
        echo "    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1     so that mpirun runs as root"
    fi
    cat << END
    build/fsdp_sample --model $model --prompt "And the king said" --temperature 0.7 --seed 2
    build/fsdp_train $config --plan --ranks 8     what 8 ranks would hold and do; runs nothing
    mpirun -np 2 --bind-to none build/fsdp_train $config data.train=TEXT output.folder=out/mine
    ls launch/configs     configs to copy; build/fsdp_train --keys explains every key
END
}

launch/install.sh bible-kjv
get_text
build
train
show
