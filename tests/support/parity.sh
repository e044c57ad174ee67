# shellcheck shell=bash
# Sourced after launch.sh by tests that compare runs with golden/: the cases of golden/cases.txt.
#
#   for_each_case FUNCTION   FUNCTION CASE RANK_COUNT ..., in a folder with the case's model and tokens; `settings` are
#                            what the case adds to "$golden/parity.ini"
#   golden_run CASE RANKS STORED OVERRIDE ...   trains a case on GPUs into ./out and compares it with its golden values,
#                            with 16-bit storage with those of the file STORED
#   numbers FOLDER           losses and norms of a run: what must not depend on how fast it ran

golden=$tests/golden

value_of() { # KEY ARGUMENT ...: the value of the argument KEY=VALUE
    local key=$1 argument
    shift
    for argument in "$@"; do
        [[ $argument != "$key="* ]] || echo "${argument#*=}"
    done
}

prepare() { # an empty folder with the model and just the tokens of 20 steps
    rm -rf model out tokens.bin
    "$build/tool_model" model "${shape[@]}" || return
    local windows=$((20 * $(value_of train.global_batch "${settings[@]}")))
    "$build/tool_tokens" tokens.bin "$(value_of vocabulary "${shape[@]}")" \
        $((windows * $(value_of train.sequence "${settings[@]}") + 1)) tokens32
}

numbers() { # FOLDER: what must not depend on how fast it ran
    grep -o '"\(loss\|gradient_norm\)": *[^,}]*' "$1/metrics.jsonl"
}

for_each_case() {
    local name ranks shape settings
    while IFS='|' read -r name ranks shape settings; do
        name=${name// /}
        [[ $name != '#'* ]] || continue
        read -ra shape <<< "$shape"
        read -ra settings <<< "$settings"
        expect "$name: model and tokens" prepare
        # shellcheck disable=SC2086 # several counts
        "$1" "$name" $ranks
    done < "$golden/cases.txt"
}

golden_run() { # CASE RANKS STORED OVERRIDE ...
    rm -rf out
    echo "$1 at $2 ranks ${*:4}"
    expect "$1 at $2 ranks ${*:4}: run" train "$2" "$golden/parity.ini" "${settings[@]}" device.kind=cuda "${@:4}"
    # shellcheck disable=SC2086 # STORED may be nothing
    expect "$1 at $2 ranks ${*:4}: values" "$build/tool_compare" "$golden/$1.json" out $3
}
