#!/bin/sh
# The command killed at every system call that changes a file, failed at every one, with traps under the names that it
# writes, and twice at once: cli/tests/crash/crash.py has what is checked. Options are for it: --scenario NAME, --quick.
# CONDPROG is the program to test; by default it is built. Needs Linux on x86-64, a C compiler and python3.
set -eu
cd "$(dirname "$0")/../.."
export PYTHONDONTWRITEBYTECODE=1
mkdir -p target
work=$(mktemp -d target/crash.XXXXXX)
trap 'rm -rf "$work"' EXIT
# By every compiler that is here: each has warnings that others lack.
built=
for compiler in gcc clang; do
    command -v "$compiler" >/dev/null || continue
    "$compiler" -std=gnu11 -O1 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -fPIC -shared \
        -o "$work/shim.so" cli/tests/crash/shim.c
    built=yes
done
[ "$built" ] || { echo "neither gcc nor clang is here, expected one of them" >&2; exit 1; }
if [ -z "${CONDPROG:-}" ]; then
    cargo build --release --quiet --package condprog-cli
    CONDPROG=target/release/condprog
fi
mkdir "$work/folders"
python3 cli/tests/crash/crash.py "$CONDPROG" "$work/shim.so" "$work/folders" "$@"
