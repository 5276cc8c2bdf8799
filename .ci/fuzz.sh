#!/bin/sh
# A few seconds of coverage-guided fuzzing for every target of fuzz/, from its seeds: `.ci/fuzz.sh [SECONDS [TARGET...]]`.
# What fails is kept in target/fuzz/artifacts. Where nightly or cargo-fuzz cannot be had, it says so and passes.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-7}
[ $# -eq 0 ] || shift
skip() {
    echo "SKIPPED: fuzzing: $1"
    exit 0
}
cargo +nightly --version >/dev/null 2>&1 || rustup toolchain install nightly --profile minimal >/dev/null 2>&1 ||
    skip "there is no nightly toolchain, and none can be installed"
cargo fuzz --version >/dev/null 2>&1 || cargo install --quiet cargo-fuzz --locked ||
    skip "there is no cargo-fuzz, and it cannot be installed"
cargo +nightly fuzz build --target-dir target/fuzz

reject=conformance/vectors/v1/reject
# Temporary files in memory, where there is such a place: targets write one an input.
[ ! -w /dev/shm ] || export TMPDIR=/dev/shm
for target in ${*:-$(cargo +nightly fuzz list)}; do
    corpus=target/fuzz/corpus/$target artifacts=target/fuzz/artifacts/$target/
    mkdir -p "$corpus" "$artifacts"
    set -- "$corpus"
    [ ! -d "fuzz/seeds/$target" ] || set -- "$@" "fuzz/seeds/$target"
    # The files that must be refused are where a reader's checks end.
    case $target in
        header | tables | part) set -- "$@" "$reject" ;;
    esac
    echo "== $target"
    # Larger inputs show nothing new here; 30 s is what no small input may take.
    target/fuzz/x86_64-unknown-linux-gnu/release/"$target" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=2048 \
        -max_len=8192 -print_final_stats=1 -artifact_prefix="$artifacts" "$@" >"$artifacts/log" 2>&1 || {
        tail -40 "$artifacts/log"
        echo "$target: an input fails; it is in $artifacts"
        exit 1
    }
    grep -E 'number_of_executed_units|DONE' "$artifacts/log"
done
