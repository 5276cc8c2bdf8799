#!/bin/bash
# The tests of eval on 1, 2 and 3 threads, each within five minutes: code that waits for a thread of its own pool hangs on
# some of them. Then, once, the figures that take minutes. A few minutes on two quiet cores.
set -euo pipefail
cd "$(dirname "$0")/.."

# within SECONDS COMMAND...
within() {
    local code=0
    timeout --kill-after=10 "$@" || code=$?
    [ $code -ne 124 ] && [ $code -ne 137 ] || echo "eval/check.sh: not done in $1 s: ${*:2}" >&2
    return $code
}

cargo test --quiet -p condprog-eval --no-run
for threads in 1 2 3; do
    echo "eval on $threads thread(s)"
    RAYON_NUM_THREADS=$threads within 300 cargo test --quiet -p condprog-eval
done
echo "eval: figures that are made again"
within 1800 cargo test --quiet -p condprog-eval -- --ignored
