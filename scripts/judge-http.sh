#!/usr/bin/env bash
# Judges the HTTP calls with tools of other projects. spectral reads their description; schemathesis sends requests that
# it makes from the description to node 1, while the other nodes lead in turn and are killed.
#   scripts/judge-http.sh [SECONDS]     120 by default. If no leader is killed in this time, the judgement fails.
# Needs `spectral` (npm) and `schemathesis` (PyPI) on the PATH. LOCKKEEPER_BIN names another binary.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${LOCKKEEPER_BIN:-target/release/lockkeeper}
work=$(mktemp -d)

kill_leaders() {
  while sleep 4; do
    leader=$("$bin" status --json 2> /dev/null | grep -o '"leader":[0-9]' | grep -o '[0-9]') || continue
    if [ "$leader" = 1 ]; then "$bin" transfer 2 || true; continue; fi
    cluster/run.sh kill "$leader"; sleep 1; cluster/run.sh restart "$leader"
    echo "$leader" >> "$work/killed"
  done > "$work/killer" 2>&1
}

cluster/run.sh start
kill_leaders &
killer=$!
trap 'kill $killer 2> /dev/null || true; wait $killer 2> /dev/null || true; cluster/run.sh stop; rm -rf "$work"' EXIT

curl -sS --retry 5 --retry-connrefused http://127.0.0.1:7621/v1/openapi.json > "$work/openapi.json"
# The description names no person to contact. Each other warning is an error.
echo '{"extends": ["spectral:oas"], "rules": {"info-contact": "off"}}' > "$work/rules.json"
spectral lint "$work/openapi.json" --ruleset "$work/rules.json" --fail-severity warn
# A value that the schema permits may still be refused: by a bound, or because a session does not exist. While leaders
# are killed, 503 and 504 are answers; 500 is none.
cat > "$work/judge.toml" << 'END'
[checks.not_a_server_error]
expected-statuses = ["2xx", "4xx", 503, 504]
END
# A stream ends only with its caller, so it would take the time of all others. What schemathesis keeps for its next run
# is of no use for another description.
(cd "$work" && schemathesis --config-file judge.toml run openapi.json --url http://127.0.0.1:7621 \
  --exclude-operation-id-regex '^(watch|hold|events)$' --max-time "${1:-120}" --request-timeout 60 \
  --exclude-checks positive_data_acceptance --continue-on-failure)
if ! [ -s "$work/killed" ]; then
  cat "$work/killer" >&2
  echo "no leader was killed" >&2
  exit 1
fi
echo "$(wc -l < "$work/killed") leaders were killed"
