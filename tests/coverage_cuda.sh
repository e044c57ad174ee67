#!/usr/bin/env bash
# Which lines of the CUDA kernels the simulated runs execute: tests/coverage_cuda.sh BUILD
#
# Compiles the kernels once more, counting, links them with the tests tests/test_cuda_*.c of the build folder, runs
# these and prints the share of lines executed per file, and which are not. Ends with 1 if it is below 95 % in one of
# them.
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
    [ "$name" != test_cuda_mutations ] || continue # which leaves out lines
    "$compiler" --coverage -o "$folder/$name" "tests/CMakeFiles/$name.dir/$name.c.o" "$folder"/*.o tests/libtest_cuda.a \
        tests/libtest_support.a libfsdp.a tests/simcuda/libsimcuda.a -lcmocka -lpthread -ldl -lm
    "$folder/$name" > "$folder/$name.log" 2>&1 || { cat "$folder/$name.log" && exit 1; }
done

# A line of a header counts as executed if it is in any of the kernels that include it.
cd "$folder"
for object in *.gcda; do
    $gcov -l -o "$folder" "$object" > /dev/null 2>&1
done
awk -F : -v least="$least" '
    FNR == 1 { path = $4; sub(/.*\//, "", path); wanted = $4 ~ /engine\/device\/cuda\/kernels\// }
    wanted && $2 + 0 > 0 && $1 !~ /-$/ {
        place = path SUBSEP ($2 + 0)
        if (!(place in lines)) { lines[place] = path; executed[place] = 0 }
        if ($1 !~ /[#=]/) executed[place] = 1
    }
    END {
        for (place in lines) { of[lines[place]]++; done[lines[place]] += executed[place] }
        for (path in of) {
            share = 100 * done[path] / of[path]
            printf "%-24s %6.2f %% of %d lines\n", path, share, of[path] | "sort"
            low += share < least; all += of[path]; all_done += done[path]
        }
        close("sort")
        printf "%-24s %6.2f %% of %d lines\n", "all", 100 * all_done / all, all
        for (place in lines) if (!executed[place]) { split(place, at, SUBSEP); printf "not executed: %s:%d\n", at[1], at[2] | "sort" }
        close("sort")
        exit all == 0 || low > 0
    }' ./*.gcov || { echo "below $least % in one of them" >&2 && exit 1; }
