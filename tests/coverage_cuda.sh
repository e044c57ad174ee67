#!/usr/bin/env bash
# Which lines of the CUDA kernels the simulated runs execute: tests/coverage_cuda.sh BUILD
#
# Compiles the kernels once more, counting, links them with the tests tests/test_cuda_*.c of the build folder, runs
# these and prints the share of lines executed per .cu file. Ends with 1 if it is below 95 % in one of them.
set -euo pipefail
least=95
[ $# -eq 1 ] || { echo "usage: $0 BUILD" >&2 && exit 64; }
source=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$build"

# The kernels' own loads and stores are instrumented for the simulator, so the counters must count by atomic functions,
# of which this is the one that the compiler calls.
cat > "$folder/counter.c" << 'END'
#include <stdint.h>
uint64_t __tsan_atomic64_fetch_add(volatile uint64_t *counter, uint64_t value, int order);
uint64_t __tsan_atomic64_fetch_add(volatile uint64_t *counter, uint64_t value, int order) {
    (void)order;
    uint64_t before = *counter;
    *counter = before + value;
    return before;
}
END
cc -O2 -c -o "$folder/counter.o" "$folder/counter.c"

# As the build compiles them, but for the output.
mapfile -t commands < <(sed -nE 's/^ *"command": "(.*) -o [^ ]*test_cuda_cu\.dir[^ ]* -c ([^ ]*\.cu)".*/\1 -c \2/p' \
    compile_commands.json)
[ ${#commands[@]} -gt 0 ] || { echo "$0: $build/compile_commands.json compiles no kernels for the simulator" >&2 && exit 1; }
compiler=${commands[0]%% *}
gcov=gcov
case $("$compiler" --version) in *clang*) gcov="llvm-cov gcov" ;; esac
for command in "${commands[@]}"; do
    name=$(basename "${command##* }" .cu)
    printf '%s --coverage -fprofile-update=atomic -o %s\0' "$command" "$folder/$name.o"
done | xargs -0 -P 2 -n 1 bash -c

for test in "$source"/tests/test_cuda_*.c; do
    name=$(basename "$test" .c)
    "$compiler" --coverage -o "$folder/$name" "tests/CMakeFiles/$name.dir/$name.c.o" "$folder"/*.o tests/libtest_cuda.a \
        tests/libtest_support.a libfsdp.a tests/simcuda/libsimcuda.a -lcmocka -lpthread -ldl -lm
    "$folder/$name" > "$folder/$name.log" 2>&1 || { cat "$folder/$name.log" && exit 1; }
done

cd "$folder"
wrong=0
for object in *.gcda; do
    name=${object%.gcda}
    $gcov -o "$folder" "$object" 2> /dev/null | grep -A 1 "/$name.cu'" | sed -nE 's/Lines executed:([0-9.]+)% of ([0-9]+)/\1 \2/p' |
        awk -v name="$name.cu" -v least="$least" \
            '{printf "%-24s %6.2f %% of %d lines\n", name, $1, $2; low = $1 < least} END {exit NR != 1 || low}' || wrong=1
done
[ $wrong -eq 0 ] || { echo "below $least %" >&2 && exit 1; }
