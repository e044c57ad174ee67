# shellcheck shell=bash disable=SC2034,SC2154
# Sourced by launch_checkpoint_*.sh after launch.sh: a run of tiny steps and checkpoints in ./out, what goes wrong under
# it, and what it left.
#
#   tiny_run STEPS INTERVAL          writes config.ini, and its tokens
#   start RANKS OVERRIDE ...         runs it in the background, into ./out; $job is the launcher, or the one rank
#   with_fault RANK NUMBER COMMAND   below its ranks, that operation on checkpoints (or FAULT_PATH) fails, once, and is
#                                    told in ./report; FAULT_KILL and FAULT_SLEEP make it something else (preload_faults.c)
#   ranks_of JOB                     their processes, of more than one
#   last EVENT                       its last step in metrics.jsonl; 0: there is none
#   count EVENT                      how many of them there are
#   is_whole CHECKPOINT

export OMPI_MCA_odls_base_sigkill_timeout=0

tiny_run() { # STEPS INTERVAL
    "$build/tool_tokens" tokens.bin 97 3000 tokens16
    cat > config.ini << END
[model]
family = llama
layers = 1
width = 8
heads = 2
vocabulary = 97
context = 16
[data]
train = tokens.bin
format = tokens16
[train]
steps = $1
global_batch = 4
[shard]
reduce = reproducible
[device]
kind = cpu
threads = 1
[output]
folder = out
checkpoint_every = $2
END
}

start() { # RANKS OVERRIDE ...
    local launcher=()
    [[ $1 -eq 1 ]] || launcher=(mpirun -np "$1" --oversubscribe --bind-to none)
    "${launcher[@]}" "$build/fsdp_train" config.ini "${@:2}" > stdout 2> stderr < /dev/null &
    job=$!
}

with_fault() { # RANK NUMBER COMMAND ...
    rm -f report
    FAULT_PATH=${FAULT_PATH:-/checkpoints} FAULT_RANK=$1 FAULT_NUMBER=$2 FAULT_REPORT=$PWD/report \
        LD_PRELOAD=$build/libpreload_faults.so "${@:3}"
}

ranks_of() { # JOB
    cat "/proc/$1/task/$1/children"
}

last() { # EVENT
    grep -s "\"event\":\"$1\"" out/metrics.jsonl | grep -o '"step":[0-9]*' | tail -n 1 | grep -o '[0-9]*$' || echo 0
}

count() { # EVENT
    grep -cs "\"event\":\"$1\"" out/metrics.jsonl
}

is_whole() { # CHECKPOINT
    "$build/fsdp_export" "$1" --verify
}
