#!/bin/bash
# On a machine with a GPU: the conformance suite on it, then the benchmark, in under 8 minutes. The report is left in
# FOLDER: conformance.txt, bench.txt, bench.json, device.txt.
#
# usage: backend-cuda/gpu-check.sh FOLDER [PROGRAM]
#
# PROGRAM is the command, built elsewhere; it needs nothing but the driver. Without it, it is built here:
#   cargo build --release && strip target/release/condprog
set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    sed -n '5,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
mkdir -p "$1"
folder=$(cd "$1" && pwd)
if [ $# -eq 2 ]; then
    program=$(realpath "$2")
else
    cd "$(dirname "$0")/.."
    cargo build --release
    program=$PWD/target/release/condprog
fi
nvidia-smi >"$folder/device.txt" 2>&1 || echo "nvidia-smi is not there or failed" >>"$folder/device.txt"
# What fails does not keep the rest from being measured. The benchmark begins no measurement after 5 minutes; what hangs
# is ended.
status=0
CONDPROG_REQUIRE=cuda timeout 240 "$program" conformance | tee "$folder/conformance.txt" || status=1
timeout $((480 - SECONDS)) "$program" bench --backend cuda --save "$folder" || status=1
exit $status
