#!/usr/bin/env bash
# The whole law, read-only: format, lints, tests, documentation. It changes nothing but the build directory.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; }

step "format"
cargo fmt --check

step "lockfile is the one that is committed"
cargo metadata --locked --format-version 1 > /dev/null

step "tests"
cargo test --locked

step "lints"
cargo clippy --locked --all-targets -- -D warnings

step "an embedding application's build: no command line, no HTTP"
cargo check --locked --lib --no-default-features

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps

printf '\nall checks passed\n'
