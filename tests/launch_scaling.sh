#!/usr/bin/env bash
# fsdp_scaling from outside: its figures add up, its files, mistakes; and a rank that is slowed from outside is named by
# fsdp_train and by fsdp_scaling. Argument: the build folder.
set -uo pipefail
# shellcheck source=tests/support/launch.sh
source "$(dirname "$0")/support/launch.sh"
small_run 30
here="mpirun --oversubscribe --bind-to none"

around=() # what starts it
scale() {
    timeout 300 "${around[@]}" "$build/fsdp_scaling" "$@" > stdout 2> stderr < /dev/null
}

# refused CODE MESSAGE ARGUMENTS...: the last line on standard error
refused() {
    local code=$1 message=$2
    shift 2
    expect "$* ends with $code" test "$(scale "$@"; echo $?)" -eq "$code"
    expect "$* says: $message" test "$(tail -n 1 stderr)" = "fsdp_scaling: $message"
}

# Between the words and the sum of the terms, which is 1 to 2 %.
adds_up() {
    awk -F, 'NR > 1 {sum = 0; for (i = 9; i <= 14; i++) sum += $i; if (sum < 0.98 * $8 || sum > 1.02 * $8) bad = 1}
             END {exit bad || NR != 3}' out/config/scaling/scaling.csv
}

# Steps of some 10 ms: what a millisecond on another program's behalf changes is not to be 2 % of them.
long_steps=(model.width=128 model.context=128 train.micro_batch=2)
expect "weak scaling over 1 and 2 ranks" scale config.ini --ranks 2,1 --repeat 2 --launcher "$here" "${long_steps[@]}"
expect "the terms add up" adds_up
expect "a row for 2 ranks, whose batch has grown" grep -qE '^ +2 +24 +[0-9]+ ' stdout
expect "a run's line" grep -qE '^run 4 of 4: 2 ranks, [0-9]+ tokens/s$' stdout
expect "what was lost" grep -qE '^2 ranks lose [-0-9.]+ % of their time: slower compute [-0-9.]+, imbalance ' stdout
expect "metrics of every run" test "$(cat out/config/scaling/ranks-*-run-*.jsonl | grep -c '"event":"step"')" -eq 120
expect "no folder of a run is left" test ! -e out/config/scaling/run
expect "JSON" grep -q '"slowest_over_mean": 1' out/config/scaling/scaling.json
expect "the picture is whole" test "$(tail -n 1 out/config/scaling/scaling.svg)" = "</svg>"
expect "strong scaling" scale config.ini --ranks 1,2 --mode strong --repeat 1 --steps 7 --launcher "$here" train.global_batch=4
expect "its batch stays" grep -qE '^ +2 +4 +[0-9]+ ' stdout

# Mistakes.
refused 2 "argument --rank: unknown option; did you mean --ranks; see fsdp_scaling --help" config.ini --rank 1,2
for list in 1,,2 1,x 0,1 2,2 '1,' "1 2" -1; do
    refused 2 "argument --ranks $list: takes different whole numbers from 1 to 1000000 with commas between them, as 1,2,4,8" config.ini --ranks "$list"
done
refused 2 "argument --mode strange: accepted are weak, strong" config.ini --mode strange
refused 2 "argument --repeat 0: takes a whole number, 1 to 1000" config.ini --repeat 0
refused 2 "argument --steps 5: takes a whole number, 7 to 100" config.ini --steps 5
refused 2 "no numbers of ranks given; add --ranks 1,2,4,8" config.ini
refused 2 "no config file given; type fsdp_scaling config.ini --ranks 1,2,4,8, or fsdp_scaling --help" --ranks 1,2
refused 2 "argument train.stepz=3: [train] stepz: unknown key; did you mean steps?" config.ini --ranks 1,2 train.stepz=3
refused 2 "config.ini:13: [train] global_batch = 12: not a multiple of the smallest number of ranks, 5, with which it grows" config.ini --ranks 5
refused 5 "absent-launcher: not found; install Open MPI (Debian package openmpi-bin), or name what starts ranks with --launcher" config.ini --ranks 1,2 --launcher absent-launcher
refused 2 "5 ranks: $build/fsdp_train ended with 2; its words are above" config.ini --ranks 1,5 --mode strong
expect "fsdp_train's own words" grep -q 'fsdp_train: .*global_batch.*: not a multiple of micro_batch 1 x 5 ranks' stderr
refused 3 "1 rank: mpirun ended with 3; its words are above" config.ini --ranks 1 data.train=absent.bin
expect "fsdp_train's own words on data" grep -q 'fsdp_train: .*absent.bin' stderr

# Nodes of a hostfile, which an agent of this test reaches, or not.
cat > agent << 'END'
#!/usr/bin/env bash
case $1 in
near) [[ "$2" == true ]] ;;
silent) exec sleep 60 ;;
mute) exit 3 ;;
*) printf 'agent: a first line\nagent: no way to %s\r\n' "$1" >&2; exit 255 ;;
esac
END
chmod +x agent
hosts() { # LINE ...
    printf '%s\n' '# a node a line' '' "$@" > hosts
}
agent="$PWD/agent"
remedy() { # NODE
    echo "mpirun needs every node of the file: make \"$agent $1 true\" work from here without a password, or take the line out"
}
unreachable=(config.ini --ranks 1 --launcher "$here --hostfile hosts --mca plm_rsh_agent $agent")
hosts 'localhost slots=2' 'near slots=4' ' far slots=1' 'farther'
refused 5 "hostfile hosts, line 5: node far cannot be reached (agent: no way to far); $(remedy far)" "${unreachable[@]}"
hosts near mute
around=(env --ignore-signal=CHLD) # as from a shell or a service that ignores it
refused 5 "hostfile hosts, line 4: node mute cannot be reached (its agent ended with 3); $(remedy mute)" "${unreachable[@]}"
around=()
hosts near far
refused 5 "hostfile hosts, line 4: node far cannot be reached (agent: no way to far); $(remedy far)" \
    config.ini --ranks 1 --launcher "$here $(printf -- '-x NAME%d ' {1..40})--hostfile hosts --mca plm_rsh_agent absent-agent:$agent"
hosts silent far
refused 5 "hostfile hosts, line 3: node silent cannot be reached (no answer within 10 seconds); $(remedy silent)" "${unreachable[@]}"
hosts "near # far" "localhost # far" "$(hostname)" "127.0.0.1"
refused 5 "hostfile hosts, line 3: node near cannot be reached (absent-agent: No such file or directory); mpirun needs every node of the file: make \"absent-agent near true\" work from here without a password, or take the line out" \
    config.ini --ranks 1 --launcher "$here --hostfile hosts --mca plm_rsh_agent absent-agent"
OMPI_MCA_plm_rsh_agent=" absent-agent -v : ./agent  far " refused 5 "hostfile hosts, line 3: node near cannot be reached (agent: no way to far); mpirun needs every node of the file: make \"./agent far near true\" work from here without a password, or take the line out" \
    config.ini --ranks 1 --launcher "$here --hostfile hosts"
refused 2 "hostfile absent: cannot open: No such file or directory" config.ini --ranks 1 --launcher "$here -machinefile absent"
hosts "localhost slots=2" "$(hostname)" "127.0.0.1"
around=(env --ignore-signal=CHLD)
expect "a hostfile of this machine" scale config.ini --ranks 1 --repeat 1 --steps 7 --launcher "$here --hostfile hosts"
around=()

expect "help" scale --help
expect "version" scale --version

# A rank slowed from outside: bound to a core on which others are busy, and behind them, so that it is the slowest
# whatever else the machine does on the other cores. Where only one core is allowed, nobody is faster.
if [[ $(nproc) -lt 2 ]]; then
    echo "one core: nothing slows one rank alone"
    finish
fi
mapfile -t cores < <(sed -n 's/^Cpus_allowed_list:\t*//p' /proc/self/status | tr , '\n' |
    awk -F- '{for (i = $1; i <= (NF > 1 ? $2 : $1); i++) print i}')
cat > bound << END
#!/usr/bin/env bash
[[ \$OMPI_COMM_WORLD_RANK == 1 ]] || exec taskset -c ${cores[0]} "\$@"
exec nice -n 10 taskset -c ${cores[1]} "\$@"
END
chmod +x bound
busy=()
for _ in 1 2; do
    taskset -c "${cores[1]}" bash -c 'while :; do :; done' &
    busy+=($!)
done
slowed() { # as `train 2`, with rank 1 on the busy core
    timeout 300 mpirun -np 2 --oversubscribe --bind-to none ./bound "$build/fsdp_train" "$@" > stdout 2> stderr < /dev/null
}
expect "a run with a slowed rank" slowed config.ini "${long_steps[@]}" train.global_batch=8 train.steps=30
warning='^fsdp_train: warning: rank 1 \(.+\) has computed [0-9]+ % longer than the mean of all ranks for 20 steps, and the others wait for it; '
expect "the slowed rank is named, once" test "$(grep -cE "$warning" stderr)" -eq 1
expect "and is the slowest in metrics" test "$(grep -c '"imbalance":1.[1-9][0-9.]*,"slowest":1' out/config/metrics.jsonl)" -ge 18
kill "${busy[@]}"
finish
