#!/usr/bin/env bash
# No CUDA kernel spills registers or keeps an array in local memory, and attention uses tensor cores: what nvcc makes of
# them, in the table of bench/ptx.sh. Skipped where there is no nvcc.
set -euo pipefail
exec "$(dirname "$0")/../bench/ptx.sh"
