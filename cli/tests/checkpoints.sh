#!/bin/sh
# Miniature checkpoints of every model family and every fault of theirs that is known, through the command, against
# computations in Python of the same numbers: cli/tests/python/checkpoints.py has what is checked. Needs python3 with
# venv, and the network for the packages. Where a GPU or a software driver is, its rows are compared too;
# CONDPROG_REQUIRE=cpu,wgpu makes its absence a failure.
set -eu
cd "$(dirname "$0")/../.."
export PYTHONDONTWRITEBYTECODE=1
cargo build --release --quiet --package condprog-cli
cargo build --release --quiet --package condprog-checkpoint --example source_values
python=target/real-input/venv/bin/python
[ -x "$python" ] || python3 -m venv target/real-input/venv
"$python" -m pip install --quiet --disable-pip-version-check safetensors numpy ml_dtypes
work=$(mktemp -d target/checkpoints.XXXXXX)
trap 'rm -rf "$work"' EXIT
"$python" cli/tests/python/checkpoints.py target/release/condprog target/release/examples/source_values "$work"
