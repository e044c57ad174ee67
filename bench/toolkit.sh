#!/usr/bin/env bash
# What the CUDA toolkit does to the CPU program, which should be nothing: fsdp_train built without its CUDA device and
# with it, side by side: bytes, libraries that it loads, and for three ways to run it the peak memory and the time to
# the end. Ends with 1 if bytes or libraries differ, or if it takes 1 % and 0.5 MB more memory; 77 if there is no nvcc.
# Times are only shown: what else the machine does is in them. (Debug information would differ: it names the folder.)
#
#   bench/toolkit.sh [FOLDER]    builds below FOLDER (build-toolkit); CMAKE_ARGUMENTS="-D..." are given to cmake
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v nvcc > /dev/null || { echo "toolkit.sh: nvcc was not found in PATH, so there is nothing to compare" >&2 && exit 77; }
folder=$(mkdir -p "${1:-build-toolkit}" && realpath "${1:-build-toolkit}")
ways=(off toolkit)
runs=20

read -ra arguments <<< "${CMAKE_ARGUMENTS:-}"
for way in "${ways[@]}"; do
    targets=(fsdp_train)
    [[ $way == off ]] || targets+=(fsdp_cuda bench_peak)
    cmake -S . -B "$folder/$way" -DBUILD_TESTING=OFF -DFSDP_CUDA="$way" "${arguments[@]}" > /dev/null
    cmake --build "$folder/$way" --parallel "$(nproc)" --target "${targets[@]}" > "$folder/$way.log" ||
        { tail -n 20 "$folder/$way.log" >&2 && exit 1; }
done
[[ -e $folder/toolkit/libfsdp_cuda.so && ! -e $folder/off/libfsdp_cuda.so ]]

cd "$folder"
head -c 20000 /dev/zero > tokens.bin
cat > config.ini << END
[model]
family = gpt2
layers = 2
width = 128
heads = 2
vocabulary = 1000
context = 64
[data]
train = tokens.bin
format = tokens16
[train]
steps = 1
global_batch = 1
[device]
threads = 1
END

# The two take turns, so that what else the machine does falls on both.
for run_as in '--help' 'config.ini --plan device.kind=auto' 'config.ini device.kind=cpu'; do
    read -ra arguments <<< "$run_as"
    rm -f measured.*
    for ((run = 0; run < runs; run++)); do
        for way in "${ways[@]}"; do
            rm -rf out
            toolkit/bench_peak "measured.$way" "$way/fsdp_train" "${arguments[@]}" > stdout 2> stderr < /dev/null ||
                { cat stderr >&2 && exit 1; }
        done
    done
    for way in "${ways[@]}"; do # the fastest run is the least disturbed one
        awk -v name="${run_as#config.ini }" -v way="$way" '
            { seconds = NR == 1 || $2 < seconds ? $2 : seconds; peak = NR == 1 || $1 < peak ? $1 : peak }
            END { printf "%s|%s|%.0f|%.1f\n", name, way, 1e3 * seconds, peak / 1e6 }' "measured.$way"
    done
done > measured

libraries() { # WAY
    ldd "$1/fsdp_train" | awk '{print $1}' | sort
}
same() { # FILE FILE
    cmp -s "$1" "$2" && echo 'the same' || echo 'DIFFERENT'
}
program=$(same off/fsdp_train toolkit/fsdp_train) loaded=$(same <(libraries off) <(libraries toolkit))
printf '%-28s %12s %12s\n' '' 'without' 'with toolkit'
printf '%-28s %12d %12d  %s\n' 'bytes of fsdp_train' "$(stat -c %s off/fsdp_train)" "$(stat -c %s toolkit/fsdp_train)" "$program"
printf '%-28s %12d %12d  %s\n' 'libraries' "$(libraries off | wc -l)" "$(libraries toolkit | wc -l)" "$loaded"
# The same program: memory differs by a page here and there.
awk -F '|' '
    { ms[$1, $2] = $3; megabytes[$1, $2] = $4 }
    !($1 in seen) { seen[$1]; names[++count] = $1 }
    END {
        for (i = 1; i <= count; i++) {
            name = names[i]
            printf "%-28s %9d ms %9d ms\n", name, ms[name, "off"], ms[name, "toolkit"]
            printf "%-28s %9.1f MB %9.1f MB\n", "", megabytes[name, "off"], megabytes[name, "toolkit"]
            more = megabytes[name, "toolkit"] - megabytes[name, "off"]
            if (more > 0.5 + 0.01 * megabytes[name, "off"]) bad = 1
        }
        exit bad
    }' measured || { echo 'toolkit.sh: the program needs more memory beside the toolkit' >&2 && exit 1; }
[[ $program == 'the same' && $loaded == 'the same' ]]
