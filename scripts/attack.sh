#!/usr/bin/env bash
# Attacks a cluster with TLS on loopback, and fails if its clients or its memory suffer, or if it does not cut what it
# should: scripts/attack/attack.py says what is judged.
#
#   scripts/attack.sh [--no-audit] [SECONDS]     SECONDS for each attack, 20 by default, at least 15
#
# Needs openssl, sslscan, slowhttptest, h2load (nghttp2-client) and Python with venv; packages of Debian with these names.
# LOCKKEEPER_BIN names the binary; without it the script builds a release. It also looks for published faults of the
# crates with cargo audit or cargo deny, and needs one of them, except with --no-audit.
set -euo pipefail
cd "$(dirname "$0")/.."

audit=(cargo audit)
if [ "${1-}" = --no-audit ]; then
  audit=()
  shift
elif ! cargo audit --version > /dev/null 2>&1; then
  audit=(cargo deny check advisories)
  cargo deny --version > /dev/null 2>&1 || {
    echo "cargo audit and cargo deny are missing; install one of them first, or give --no-audit" >&2
    exit 69
  }
fi
seconds=${1:-20}
for tool in openssl sslscan slowhttptest h2load python3; do
  command -v "$tool" > /dev/null || { echo "$tool is missing; install it first" >&2; exit 69; }
done
if [ -z "${LOCKKEEPER_BIN:-}" ]; then
  cargo build --locked --release
  LOCKKEEPER_BIN=${CARGO_TARGET_DIR:-target}/release/lockkeeper
fi
folder=$(mktemp -d)
node=""
end() {
  if [ -n "$node" ]; then kill "$node" 2> /dev/null && wait "$node" 2> /dev/null || true; fi
  rm -rf "$folder"
}
trap end EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q h2==4.4.1

base=${LOCKKEEPER_PORT_BASE:-27700}
# Some of the tools can show no certificate.
"$LOCKKEEPER_BIN" dev --tls --client-cert optional --dir "$folder/data" --port-base "$base" > "$folder/dev.out" 2> "$folder/dev.log" &
node=$!
certs=$folder/data/certs
export LOCKKEEPER_ENDPOINTS=127.0.0.1:$((base + 1)),127.0.0.1:$((base + 2)),127.0.0.1:$((base + 3))
export LOCKKEEPER_CA=$certs/ca.pem LOCKKEEPER_CERT=$certs/client-dev.pem LOCKKEEPER_KEY=$certs/client-dev.key
until [ -s "$LOCKKEEPER_KEY" ]; do
  kill -0 "$node" || { cat "$folder/dev.log" >&2; exit 70; }
  sleep 0.1
done
"$LOCKKEEPER_BIN" lock --timeout 30s ready -- true
status=0
"$folder/venv/bin/python3" scripts/attack/attack.py --binary "$LOCKKEEPER_BIN" --certs "$certs" --pid "$node" \
  --port-base "$base" --seconds "$seconds" || status=1
printf '\nPublished faults of the crates\n\n'
if [ ${#audit[@]} = 0 ]; then
  echo "  not looked for: --no-audit"
else
  "${audit[@]}" || status=1
fi
exit "$status"
