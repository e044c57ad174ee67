# shellcheck shell=bash disable=SC2034,SC2154
# Sourced by the benchmarks of whole runs: the shape that they train, as a config in $folder. They set family, ranks and
# steps.

layers=6 width=384 heads=6 vocabulary=50257 sequence=256 sequences=4

# Open MPI refuses root unless told twice.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

shape_of_family() { # fails for a family that is none
    case $family in
    gpt2) feed_forward=1536 tied=yes block_matrices=$((4 * width * width + 2 * width * feed_forward)) ;;
    llama) feed_forward=1024 tied=no block_matrices=$((4 * width * width + 3 * width * feed_forward)) ;;
    *) return 1 ;;
    esac
}

write_run() { # into $folder
    # Bytes below 196 in pairs are tokens below the vocabulary: 195 * 257 = 50115.
    LC_ALL=C tr -dc '\000-\303' < /dev/urandom 2> /dev/null | head -c 400000 > "$folder/tokens.bin" || true
    cat > "$folder/config.ini" << END
[model]
family = $family
layers = $layers
width = $width
heads = $heads
feed_forward = $feed_forward
vocabulary = $vocabulary
context = $sequence
tied = $tied
[data]
train = "$folder/tokens.bin"
format = tokens16
[train]
steps = $steps
global_batch = $((sequences * ranks))
micro_batch = $sequences
[device]
kind = cpu
threads = 1
[output]
folder = "$folder/out"
END
}

# Of all steps but the first, which meets new memory: the median of a field of metrics.jsonl.
median_of() {
    sed -nE "s/^\{\"event\": *\"step\".*\"$1\": *([-+.0-9eE]+).*/\1/p" "$folder/out/metrics.jsonl" | tail -n +2 |
        sort -g | awk '{v[NR] = $1} END {print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2}'
}
