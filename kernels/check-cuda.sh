#!/bin/bash
# Everything about the CUDA kernels that can be checked without a GPU. Needs cargo, a C++ compiler, python3 and, the
# first time, about 50 MB of packages from PyPI, which stay in target/.
#
# usage: kernels/check-cuda.sh [--update] [machine-code | host | backend]
#   machine-code  NVRTC compiles the sources; the PTX and the report that are checked in are what comes out; ptxas warns
#                 of nothing, no spills, no local memory, 16-byte stores
#   host          the kernels on the CPU: the conformance suite in three orders of threads, again with the address and
#                 undefined-behaviour sanitizers, a small part with the thread sanitizer, and every planted fault found
#   backend       the CUDA backend with a driver that is simulated on the CPU: the conformance suite with each placement,
#                 requests on streams and in graphs, refusals of the driver, the examples, the benchmark's code
#   --update      writes what lies in kernels/prebuilt/ instead of comparing it
set -euo pipefail
cd "$(dirname "$0")/.."

update=false
what=all
for argument; do
    case $argument in
        --update) update=true ;;
        machine-code | host | backend) what=$argument ;;
        *) sed -n '5,13s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done

nvrtc=nvidia-cuda-nvrtc-cu12==12.6.85
ptxas=nvidia-cuda-nvcc-cu12==12.6.85
nvdisasm=nvidia-cuda-nvdisasm==13.5.37
# The least PTX version that has compute_90 is 7.8: drivers from 520 on take it.
versions="7.8 8.0 8.1 8.2 8.3 8.4 8.5"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# assemble PTX CUBIN: messages on stderr
assemble() {
    "$packages/cuda_nvcc/bin/ptxas" -arch=sm_90 -v --warn-on-spills --warn-on-local-memory-usage -Werror "$1" -o "$2"
}

# same FILE: the new one in $scratch is the one checked in, or becomes it
same() {
    if $update; then
        cp "$scratch/$1" "kernels/prebuilt/$1"
    elif ! cmp -s "$scratch/$1" "kernels/prebuilt/$1"; then
        echo "kernels/prebuilt/$1 is not what the sources make; see the difference, then run kernels/check-cuda.sh --update" >&2
        diff "kernels/prebuilt/$1" "$scratch/$1" | head -40 >&2
        exit 1
    fi
}

# The pinned compiler, assembler and disassembler, in $packages.
tools() {
    local venv=target/cuda-tools stamp="$nvrtc $ptxas $nvdisasm"
    if [ "$(cat "$venv/stamp" 2>/dev/null)" != "$stamp" ]; then
        rm -rf "$venv"
        python3 -m venv "$venv"
        "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps "$nvrtc" "$ptxas" "$nvdisasm"
        echo "$stamp" >"$venv/stamp"
    fi
    packages=$(echo "$PWD/$venv"/lib/python3*/site-packages/nvidia)
}

machine_code() {
    tools
    cargo build --quiet -p condprog-cuda --example ptx
    : >"$scratch/messages"
    : >"$scratch/listing"
    for name in decode bench; do
        LD_LIBRARY_PATH=$packages/cuda_nvrtc/lib target/debug/examples/ptx "kernels/$name.cu" >"$scratch/made.ptx"
        assemble "$scratch/made.ptx" "$scratch/made.cubin" 2>>"$scratch/messages" || { cat "$scratch/messages" >&2; exit 1; }
        # The lowest version that gives the same machine code.
        for version in $versions; do
            sed "s/^\.version .*/.version $version/" "$scratch/made.ptx" >"$scratch/$name.ptx"
            if assemble "$scratch/$name.ptx" "$scratch/lowered.cubin" 2>/dev/null &&
                cmp -s "$scratch/made.cubin" "$scratch/lowered.cubin"; then
                break
            fi
            rm "$scratch/$name.ptx"
        done
        "$packages/cu13/bin/nvdisasm" -c "$scratch/made.cubin" >>"$scratch/listing" 2>/dev/null
        same "$name.ptx"
    done
    python3 kernels/static_report.py "$scratch/messages" "$scratch/listing" >"$scratch/static-report.txt"
    same static-report.txt
    echo "machine code: $(grep -c '^decode' kernels/prebuilt/static-report.txt) decoders, PTX $(sed -n 's/^\.version //p' kernels/prebuilt/decode.ptx)," \
        "no spills, no local memory, 16-byte stores; PTX and report are up to date"
}

host() {
    export CONDPROG_REQUIRE=cuda-host${CONDPROG_REQUIRE:+,$CONDPROG_REQUIRE}
    cargo test --quiet -p condprog-cuda-host -- --include-ignored
    CONDPROG_HOST_FLAGS="-fsanitize=address,undefined -fno-sanitize-recover=all" \
        cargo test --quiet -p condprog-cuda-host --test conformance --test requests
    CONDPROG_HOST_FLAGS="-fsanitize=thread -DCONDPROG_THREADS" \
        cargo test --quiet -p condprog-cuda-host --test requests small
    # The portable way to switch between threads, which other processors take.
    CONDPROG_HOST_FLAGS="-DCONDPROG_UCONTEXT" cargo test --quiet -p condprog-cuda-host --test requests small
    echo "host: the suite in three orders of threads, with sanitizers, and every planted fault found"
}

backend() {
    local libraries=target/debug/examples driver
    tools
    cargo build --quiet -p condprog-cuda --features cudarc --examples
    # Without a driver: nothing panics, and the examples say why they do nothing.
    cargo test --quiet -p condprog-cuda --features cudarc
    "$libraries/stream" | grep -q 'not run: no CUDA driver' || [ -e /dev/nvidia0 ]
    python3 backend-cuda/examples/c_abi.py "$libraries/libc_abi.so"

    driver=$(cargo run --quiet -p condprog-cuda-host --example driver -- "$PWD/target/tmp")
    "${CXX:-c++}" -std=c++17 -Wall -Wextra -Werror backend-cuda/examples/c_abi.cpp "-L$libraries" -lc_abi "-L$driver" -lcuda \
        -o "$scratch/c_abi"
    (
        export LD_LIBRARY_PATH=$driver:$PWD/$libraries:$packages/cuda_nvrtc/lib CONDPROG_REQUIRE=cuda
        # Addresses and handles alone, then all of it.
        cargo test --quiet -p condprog-cuda --test raw --test failures
        cargo test --quiet -p condprog-cuda --features cudarc
        "$libraries/stream"
        "$scratch/c_abi" | grep -q '^first missing position: 1$'
        cargo run --quiet -- bench --backend cuda --small --save "$scratch/report" >/dev/null
        grep -q '"exact": true' "$scratch/report/bench.json"
    )
    echo "backend: the suite with each placement, streams, graphs, refusals, examples and benchmark on a simulated driver"
}

case $what in
    all) machine_code; if ! $update; then host; backend; fi ;;
    machine-code) machine_code ;;
    host) host ;;
    backend) backend ;;
esac
