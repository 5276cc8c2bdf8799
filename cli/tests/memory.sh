#!/bin/sh
# Compressing a 4 GiB file takes less than 1 GiB of memory of its own: mapped pages of the input, which the system takes
# back at will, are not counted.
#
#   cli/tests/memory.sh
#
# The file is sparse: 4,194,304 rows of 256 F32 values, of which the first 2,048 are random and the others zeros. Linux
# only: what is measured is the anonymous and shared memory in /proc/PID/status, looked at every hundredth of a second.
set -eu
cd "$(dirname "$0")/../.."
cargo build --release --quiet --package condprog-cli
work=$(mktemp -d target/memory.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 - "$work/in.safetensors" <<'PYTHON'
import array, json, random, struct, sys

rows, dim = 4 << 20, 256
header = {"t": {"dtype": "F32", "shape": [rows, dim], "data_offsets": [0, rows * dim * 4]}}
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
random.seed(1)
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    array.array("f", (random.gauss(0, 1) for _ in range(2048 * dim))).tofile(file)
    file.truncate(8 + len(text) + rows * dim * 4)
PYTHON
target/release/condprog compress "$work/in.safetensors" -o "$work/out.safetensors" --effort 0 &
run=$!
peak=0
while now=$(awk '/^Rss(Anon|Shmem):/ { sum += $2 } END { print sum + 0 }' "/proc/$run/status" 2>/dev/null) && [ "$now" -gt 0 ]
do
    [ "$now" -le "$peak" ] || peak=$now
    sleep 0.01
done
wait "$run"
target/release/condprog verify "$work/out.safetensors"
echo "peak of its own memory: $((peak / 1024)) MiB, of 1024 allowed"
[ "$peak" -gt 0 ] && [ "$peak" -lt $((1024 * 1024)) ]
