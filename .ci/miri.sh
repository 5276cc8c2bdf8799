#!/bin/sh
# Core, the memory of tables, table files and the portable backend under Miri, which finds undefined behaviour: reads past a buffer,
# misaligned ones, data races. It interprets, some thousand times slower, so tests are cut down by cfg(miri), and the
# encoder's search over all states is left out. Where the nightly toolchain cannot be had, it says so and passes.
set -eu
cd "$(dirname "$0")/.."
toolchain=nightly
if ! cargo "+$toolchain" miri --version >/dev/null 2>&1; then
    if ! rustup toolchain install "$toolchain" --profile minimal --component miri --component rust-src >/dev/null 2>&1 ||
        ! cargo "+$toolchain" miri --version >/dev/null 2>&1; then
        echo "SKIPPED: Miri: there is no $toolchain toolchain with it, and none can be installed"
        exit 0
    fi
fi
# Tests take the instruction set from the environment. Rayon's threads are out of scope: without it the same code runs.
export CONDPROG_CPU_LEVEL=portable
miri() {
    cargo "+$toolchain" miri test --quiet --target-dir target/miri "$@"
}
# Tests of table files use the disk.
export MIRIFLAGS="-Zmiri-disable-isolation"
miri -p condprog-memory --lib
# Left out: texts of megabytes, JSON a hundred thousand levels deep, and properties over hundreds of files.
miri -p condprog-table --lib -- --skip short_values_are_whole
miri -p condprog-table --test header -- --skip any_bytes --skip what_the_crate_writes --skip values_in_messages \
    --skip what_is_no_safetensors
miri -p condprog-core --lib
miri -p condprog-cpu --no-default-features --lib --test decode
