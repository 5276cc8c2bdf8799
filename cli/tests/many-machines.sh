#!/bin/sh
# The scripts of docs/many-machines.md on this machine, with tasks killed in the middle: what is checked is in
# cli/tests/python/many_machines.py. Needs bash, python3 with venv, and the network for the packages, of which one is Ray
# (300 MB in target/many-machines).
set -eu
cd "$(dirname "$0")/../.."
export PYTHONDONTWRITEBYTECODE=1
cargo build --release --quiet --package condprog-cli
python=target/many-machines/venv/bin/python
[ -x "$python" ] || python3 -m venv target/many-machines/venv
"$python" -m pip install --quiet --disable-pip-version-check numpy ml_dtypes ray safetensors
bash -n docs/compress_on_slurm.sh
work=$(mktemp -d target/many-machines/work.XXXXXX)
trap 'rm -rf "$work"' EXIT
"$python" cli/tests/python/many_machines.py target/release/condprog "$work"
