#!/usr/bin/env bash
# Builds the Debian package, and prints its path.
#   scripts/packaging/deb.sh [BINARY]
# Without BINARY, builds the program with the profile dist. Needs cargo-deb and Debian's dpkg-dev.
set -euo pipefail
cd "$(dirname "$0")/../.."
built=${1:-}
if [ -z "$built" ]; then
  cargo build --locked --profile dist >&2
  built=${CARGO_TARGET_DIR:-target}/dist/lockkeeper
fi
stage=target/package-files
rm -rf "$stage"
mkdir -p "$stage/completions"
strip -o "$stage/lockkeeper" "$built"
scripts/packaging/man.sh "$stage/lockkeeper" > "$stage/lockkeeper.1"
"$stage/lockkeeper" completions bash > "$stage/completions/lockkeeper"
"$stage/lockkeeper" completions zsh > "$stage/completions/_lockkeeper"
"$stage/lockkeeper" completions fish > "$stage/completions/lockkeeper.fish"
cargo deb --locked --no-build --no-strip --output "$stage/lockkeeper.deb" >&2
echo "$stage/lockkeeper.deb"
