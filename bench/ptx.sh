#!/usr/bin/env bash
# What the compiler makes of the CUDA kernels, a line per kernel: bench/ptx.sh [file.cu ...]
#
# Registers per thread and bytes of spills and stack, the most among the kernel's instances, for sm_80/sm_90/sm_100, as
# ptxas says; tensor-core (mma) and 128-bit load and store instructions of PTX in the instance that has most. Needs
# nvcc. Ends with 1 if a kernel spills or keeps an array in local memory, or if one in an attention file has no
# tensor-core instruction (save those of without_products, which multiply no matrices).
set -euo pipefail
cd "$(dirname "$0")/.."

nvcc=$(command -v nvcc || true)
if [ -z "$nvcc" ]; then
    echo "ptx.sh: nvcc was not found in PATH, so there is nothing to measure" >&2
    exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

architectures="80 90 100"
without_products="sum_products"
[ $# -gt 0 ] || set -- engine/device/cuda/kernels/*.cu

# PTX is made once, for the oldest architecture, and assembled for each.
measure() { # file.cu
    local name=${1##*/} a
    name=${name%.cu}
    "$nvcc" -std=c++17 -ptx -arch=compute_80 -Iengine/device/cuda/ptx -I. -o "$folder/$name.ptx" "$1"
    for a in $architectures; do
        "$(dirname "$nvcc")/ptxas" -v -arch="sm_$a" -o /dev/null "$folder/$name.ptx" 2> "$folder/$name.$a" ||
            { cat "$folder/$name.$a" >&2 && return 1; }
    done
}

# Instances of a template are one kernel. A mangled name has its own length in front: _Z4norm..., or in a namespace of
# its own for `static`.
table() {
    awk -v architectures="$architectures" -v without_products="$without_products" '
        function kernel(mangled,    length_of, at) {
            match(mangled, /[0-9]+[a-z]/)
            length_of = substr(mangled, RSTART, RLENGTH - 1)
            at = RSTART + RLENGTH - 1
            return substr(mangled, at, length_of)
        }
        function most(table, key, value) { if (value + 0 > table[key] + 0) table[key] = value + 0 }
        FNR == 1 {
            file = FILENAME
            sub(/.*\//, "", file)
            architecture = file
            sub(/.*\./, "", architecture)
            sub(/\.[a-z0-9]*$/, "", file)
            entry = ""
        }
        architecture == "ptx" {
            if (match($0, /\.entry [A-Za-z0-9_]+/)) {
                entry = substr($0, RSTART + 7, RLENGTH - 7)
                name = file " " kernel(entry)
                if (!(name in instances)) order[++kernels] = name
                instances[name]++
                products = wide = 0
            }
            products += /mma\.sync/
            wide += /(ld|st)\.[a-z.]*v4\.[a-z]32/ || /cp\.async\.cg/
            if (/^}/ && entry != "") {
                most(mma, name, products)
                most(vectors, name, wide)
                if (products == 0) without_mma[name]++
                entry = ""
            }
        }
        architecture != "ptx" {
            if (match($0, /entry function .[A-Za-z0-9_]+/)) name = file " " kernel(substr($0, RSTART + 16, RLENGTH - 16))
            if (/entry function/) is_entry = 1
            else if (/Function properties for/) is_function = !is_entry
            if (/bytes stack frame/) {
                match($0, /[0-9]+ bytes stack/); stack = substr($0, RSTART, RLENGTH) + 0
                match($0, /[0-9]+ bytes spill stores/); stores = substr($0, RSTART, RLENGTH) + 0
                match($0, /[0-9]+ bytes spill loads/); loads = substr($0, RSTART, RLENGTH) + 0
                if (is_entry) { most(spills, name " " architecture, stores + loads); most(stacks, name " " architecture, stack) }
            }
            if (match($0, /Used [0-9]+ registers/)) {
                most(registers, name " " architecture, substr($0, RSTART + 5, RLENGTH - 5) + 0)
                is_entry = 0
            }
        }
        function three(table, name,    i, n, parts, text) {
            n = split(architectures, parts, " ")
            for (i = 1; i <= n; i++) text = text (i > 1 ? "/" : "") table[name " " parts[i]] + 0
            return text
        }
        END {
            format = "%-20s %-20s %9s %12s %8s %8s %5s %8s\n"
            printf format, "file", "kernel", "instances", "registers", "spills", "stack", "mma", "128-bit"
            for (i = 1; i <= kernels; i++) {
                name = order[i]
                split(name, parts, " ")
                printf format, parts[1], parts[2], instances[name], three(registers, name), three(spills, name),
                    three(stacks, name), mma[name] + 0, vectors[name] + 0
                if (three(spills, name) != "0/0/0" || three(stacks, name) != "0/0/0") {
                    print "wrong: " name " spills, or keeps an array in local memory"
                    wrong = 1
                }
                if (parts[1] ~ /^attention/ && without_mma[name] > 0 && index(without_products, parts[2]) == 0) {
                    print "wrong: " without_mma[name] " instances of " name " have no tensor-core instruction"
                    wrong = 1
                }
            }
            exit wrong
        }' "$folder"/*.ptx "$folder"/*.80 "$folder"/*.90 "$folder"/*.100
}

for file; do
    measure "$file" &
    [ "$(jobs -r | wc -l)" -lt 2 ] || wait -n
done
while [ "$(jobs | wc -l)" -gt 0 ]; do
    wait -n
done
table
