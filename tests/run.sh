#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test. Arguments go to ctest, for example: tests/run.sh -R test_data
# Tests that take minutes are run only by tests/run.sh -C long (all tests) or tests/run.sh -C long -L long (only those).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

launch/install.sh
cmake -S . -B build -DBUILD_TESTING=ON
cmake --build build --parallel "$(nproc)"
result=0
ctest --test-dir build --output-on-failure --parallel "$(nproc)" "$@" || result=$?
echo "Installed, built and tested in $((SECONDS / 60)) min $((SECONDS % 60)) s."
exit "$result"
