#!/usr/bin/env bash
# All checks: format, tests, lints, documentation. Changes nothing but the build directory.
#
#   scripts/check.sh                  everything; prints the duration of each step
#   scripts/check.sh full             everything, and the tests that have a short form in their full length
#   scripts/check.sh quick MODULE     the unit tests of one module (machine, client::lease ...), or tests/tidy.rs
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 64; }

export RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/rustc-tests.sh
current="" begun=0 durations=()
finish() { if [ -n "$current" ]; then durations+=("$(printf '%5d s  %s' $((SECONDS - begun)) "$current")"); fi; }
step() {
  finish
  current=$*
  begun=$SECONDS
  printf '\n== %s\n' "$*"
}
report() {
  finish
  current=""
  printf '\n'
  printf '%s\n' "${durations[@]}"
}

case ${1-} in
  "") ;;
  full) export LOCKKEEPER_FULL=1 ;;
  quick)
    [ $# = 2 ] || usage
    if [ "$2" = tidy ]; then exec cargo test --locked --test tidy; fi
    exec cargo test --locked --lib -- "$2::"
    ;;
  *) usage ;;
esac
background="" linted=$(mktemp) shown=$(mktemp)
end() {
  # The lints are a process group, and the node of the smoke test is one process.
  if [ -n "$background" ]; then kill -- "-$background" 2> /dev/null || kill "$background" 2> /dev/null || true; fi
  rm -f "$linted" "$shown"
  report
}
trap end EXIT
lints() {
  cargo clippy --locked --all-targets -- -D warnings &&
    printf '\n== build for embedding: no command line, no HTTP\n' &&
    cargo check --locked --lib --no-default-features &&
    printf '\n== documentation\n' &&
    RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps
}

step "format"
cargo fmt --check

step "lockfile is up to date"
cargo metadata --locked --format-version 1 > /dev/null

step "licences, versions and sources of the packages"
if command -v cargo-deny > /dev/null; then
  cargo-deny --locked --offline check -D unmatched-skip licenses bans sources
else
  echo "SKIPPED: cargo-deny is not installed; only tests/tidy/packages.rs checks the packages" >&2
fi

step "number of packages in the manual"
packages() { cargo tree --locked --target x86_64-unknown-linux-gnu --edges normal,build --prefix none "$@" | cut -d' ' -f1,2 | sort -u | wc -l; }
counted="$(packages) packages with the feature \`cli\`, $(packages --no-default-features) without"
printf '%s\n' "$counted"
tr '\n' ' ' < src/manual/measuring.md | grep -qF "$counted" || {
  echo "src/manual/measuring.md states other numbers" >&2
  exit 1
}

step "build of the tests"
cargo test --locked --no-run

step "tests"
# The tests leave a part of the processors idle, and the lints take that part only. Cargo gives the build directory free
# while tests run; if the lints get it first, the tests wait for them.
set -m
(renice -n 19 "$BASHPID" > /dev/null && lints) > "$linted" 2>&1 &
background=$!
set +m
cargo test --locked

step "lints, build for embedding, documentation"
status=0
wait "$background" || status=$?
background=""
cat "$linted"
[ "$status" = 0 ]

step "smoke test: dev and lock"
built=${CARGO_TARGET_DIR:-target}/debug/lockkeeper
"$built" dev --ephemeral --port-base 27600 > "$shown" &
background=$!
export LOCKKEEPER_ENDPOINTS=127.0.0.1:27601,127.0.0.1:27602,127.0.0.1:27603
printed=$("$built" lock --timeout 30s nightly -- echo "only me")
printf '%s\n' "$printed"
[ "$printed" = "only me" ]
cat "$shown"
if command -v curl > /dev/null || [ -n "${LOCKKEEPER_SKIP_NOTHING-}" ]; then
  answered=$(eval "$(sed -n 's/^  or  *//p' "$shown")")
  printf '%s\n' "$answered"
  [[ $answered = *'"state":"granted"'* ]]
else
  echo "SKIPPED: the line with curl that dev prints, for there is no curl" >&2
fi
kill -INT "$background"
wait "$background"
background=""

printf '\nall checks passed\n'
