#!/bin/bash
# On a machine with a GPU: the conformance suite on it, then the benchmark, in under 8 minutes. The report is left in
# FOLDER: conformance.txt, bench.txt, bench.json, device.txt.
#
# usage: backend-cuda/gpu-check.sh FOLDER [PROGRAM]
#
# PROGRAM is what this command makes elsewhere; without it, it is built here:
#   cargo build --release -p condprog-cuda --example gpu_check      # target/release/examples/gpu_check
set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    sed -n '5,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
mkdir -p "$1"
folder=$(cd "$1" && pwd)
if [ $# -eq 2 ]; then
    program=$2
else
    cd "$(dirname "$0")/.."
    cargo build --release -p condprog-cuda --example gpu_check
    program=target/release/examples/gpu_check
fi
nvidia-smi >"$folder/device.txt" 2>&1 || echo "nvidia-smi is not there or failed" >>"$folder/device.txt"
# The benchmark stops beginning measurements after 7 minutes; what hangs is ended.
timeout 480 "$program" "$folder"
