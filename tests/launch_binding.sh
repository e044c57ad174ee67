#!/usr/bin/env bash
# Which cores ranks get: divided, shared, left to the launcher, refused; and another job on the same ones. Argument: the
# build folder.
set -uo pipefail
# shellcheck source=tests/support/launch.sh
source "$(dirname "$0")/support/launch.sh"
small_run 2
sed -i '/^threads/d' config.ini
allowed=$(sed -n 's/^Cpus_allowed_list:\t*//p' /proc/self/status)
count=$(taskset -c "$allowed" nproc --ignore=0)

started() { # LAUNCHER ... -- ARGUMENT ...
    local launcher=()
    while [[ $1 != -- ]]; do
        launcher+=("$1")
        shift
    done
    shift
    timeout 120 "${launcher[@]}" "$build/fsdp_train" config.ini "$@" > stdout 2> stderr < /dev/null
}

row() { # RANK WORDS: how its row begins
    grep -qE "^rank $1 +host [^,]+, $2, " stdout
}

one=core$([[ $count -eq 1 ]] || echo s)
expect "one rank" started -- train.steps=1
expect "has what is allowed" row 0 "$one $allowed(, NUMA node [-0-9,]+)?"

# On one core two ranks share; else each has its own, whatever Open MPI does unasked.
expect "two ranks" started mpirun -np 2 --oversubscribe -- output.folder=two
if [[ $count -ge 2 ]]; then
    expect "rank 0 is bound" row 0 'bound to cores? [-0-9,]+(, NUMA node [-0-9,]+)?'
    expect "rank 1 is bound" row 1 'bound to cores? [-0-9,]+(, NUMA node [-0-9,]+)?'
    expect "to other cores" test "$(grep -oE '^rank [01] .*bound to cores? [-0-9,]+' stdout | grep -oE '[-0-9,]+$' | sort -u | wc -l)" -eq 2
    expect "insisted on, it wins over mpirun" started mpirun -np 2 --oversubscribe --bind-to none -- output.folder=yes device.bind=yes
    expect "rank 1 is bound, again" row 1 'bound to cores? [-0-9,]+(, NUMA node [-0-9,]+)?'
fi
expect "mpirun is asked for something else" started mpirun -np 2 --oversubscribe --bind-to none -- output.folder=none
expect "and that is kept" row 1 "$one $allowed(, NUMA node [-0-9,]+)?, shared by 2 ranks"
expect "no binding" started mpirun -np 2 --oversubscribe -- output.folder=no device.bind=no
expect "ranks share what is allowed" row 1 "$one $allowed(, NUMA node [-0-9,]+)?, shared by 2 ranks"

# What is allowed is a limit, for Open MPI's own way as well.
first=${allowed%%[-,]*}
expect "two ranks in one core" started taskset -c "$first" mpirun -np 2 --oversubscribe -- output.folder=narrow
expect "share it" row 1 "core $first(, NUMA node [-0-9,]+)?, shared by 2 ranks"
expect "insisting is refused" test "$(started taskset -c "$first" mpirun -np 2 --oversubscribe -- device.bind=yes; echo $?)" -ne 0
refusal="fsdp_train: argument device.bind=yes: [device] bind: 2 ranks on host $(hostname) may use 1 core ($first); start at most 1 there, allow them more, or leave bind out"
expect "in these words" grep -qF "$refusal" stderr

# Another job.
"$build/fsdp_train" config.ini output.folder=other train.steps=1000000 > /dev/null 2>&1 &
other=$!
for _ in $(seq 100); do
    [[ -s other/metrics.jsonl ]] && break
    sleep 0.1
done
expect "a second job" started -- output.folder=second
warning="^fsdp_train: warning: another job's process [0-9]+ may use the same cores \([-0-9,]+\) of host [^,]+, where rank 0 has a thread for every core: both will be slow; "
expect "is warned of the first" test "$(grep -cE "$warning" stderr)" -eq 1
kill -KILL $other
wait $other 2> /dev/null
finish
