#!/bin/sh
# A checkpoint of 110 GB that is nearly all holes: offsets past 2^32, rows past 2^31, little memory. What is checked is
# in cli/tests/python/sparse.py. Needs python3 with venv, the network for the packages, and a file system with holes.
set -eu
cd "$(dirname "$0")/../.."
export PYTHONDONTWRITEBYTECODE=1
cargo build --release --quiet --package condprog-cli
python=target/real-input/venv/bin/python
[ -x "$python" ] || python3 -m venv target/real-input/venv
"$python" -m pip install --quiet --disable-pip-version-check safetensors numpy ml_dtypes xxhash
work=$(mktemp -d target/sparse.XXXXXX)
trap 'rm -rf "$work"' EXIT
"$python" cli/tests/python/sparse.py target/release/condprog "$work"
