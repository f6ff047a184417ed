#!/usr/bin/env bash
# Judges the web page of a real cluster with tools of other projects: headless Chromium with axe-core (WCAG 2.2 AA) at
# 360 and 1,280 px, light and dark; html-validate; and the keyboard. Chromium also signs in, asks a holder and breaks
# holds, one of them with a form that is stale. Live screens keep focus and selection, and say when the node does not
# answer. The report of a drill is judged in the same way. Writes a screenshot of each screen.
#   scripts/judge-page.sh [DIRECTORY]
# The screenshots are in DIRECTORY [default: a temporary one]. Needs node, Chromium, and `npm install puppeteer-core
# axe-core html-validate` in the directory NODE_MODULES_DIR [default: .]. CHROMIUM names another browser, LOCKKEEPER_BIN
# another binary, PORT_BASE the ports of the cluster [default: 28600].
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(realpath "${LOCKKEEPER_BIN:-target/release/lockkeeper}")
base=${PORT_BASE:-28600}
shots=$(realpath -m "${1:-$(mktemp -d)}")
work=$(mktemp -d)
jobs_started=()
end() {
  # A node that was stopped ends only once it continues.
  for job in "${jobs_started[@]}"; do { kill "$job" && kill -CONT "$job"; } 2> /dev/null || true; done
  wait 2> /dev/null || true
  rm -rf "$work"
}
trap end EXIT

# Before the cluster, so that a drill has the machine to itself.
"$bin" drill --kill leader --rounds 1 --report "$work/drill.html" > /dev/null

# Rules with a principal that may do everything, and its token.
printf '%s\n' 'version = 1' '[[role]]' 'name = "admin"' 'rules = [{ namespace = "*", right = "admin" }]' \
  '[[principal]]' 'name = "ops"' 'roles = ["admin"]' '[[principal]]' 'name = "anonymous"' 'roles = ["admin"]' > "$work/auth.toml"
chmod 600 "$work/auth.toml"
"$bin" auth token "$work/auth.toml" ops --out "$work/token" > /dev/null
for node in 1 2 3; do
  {
    printf 'cluster = "harbour"\nnode = %s\ndata = "%s/n%s"\n[listen]\n' "$node" "$work" "$node"
    printf 'client = "127.0.0.1:%s"\npeer = "127.0.0.1:%s"\nhttp = "127.0.0.1:%s"\n' $((base + node)) $((base + 10 + node)) $((base + 20 + node))
    for peer in 1 2 3; do
      printf '[[member]]\nid = %s\nclient = "127.0.0.1:%s"\npeer = "127.0.0.1:%s"\n' "$peer" $((base + peer)) $((base + 10 + peer))
    done
    printf '[auth]\nfile = "%s/auth.toml"\n[audit]\nfile = "%s/n%s.jsonl"\n' "$work" "$work" "$node"
  } > "$work/n$node.toml"
  "$bin" serve --config "$work/n$node.toml" > "$work/n$node.log" 2>&1 &
  jobs_started+=($!)
done
nodes=${jobs_started[*]}
export LOCKKEEPER_ENDPOINTS=127.0.0.1:$((base + 1)),127.0.0.1:$((base + 2)),127.0.0.1:$((base + 3))
url=http://127.0.0.1:$((base + 21))
K=$url/v1/ns/default
curl -sS -o /dev/null --retry 30 --retry-delay 1 --retry-all-errors --fail "$url/readyz"

# A busy night: holders, queues, a semaphore, a lost hold, a deadlock that was refused, and names that try to act.
call() { curl -sS -o "$work/answer" -H content-type:application/json "$K/$1" -d "$2"; }
hold() { "$bin" lock "$1" --why "$2" -- sh -c "$3" > /dev/null 2>&1 & jobs_started+=($!); }
field() { grep -o "\"$1\":\"[^\"]*\"" "$work/answer" | head -1 | cut -d'"' -f4; }
take() { call acquire "{\"lock\":\"$1\",\"lease_ms\":$2,\"wait_ms\":$3,\"poll_ms\":20,\"who\":\"$4\",\"why\":\"$5\",\"host\":\"$6\",\"pid\":$7}"; }
for name in anna ben cleo dan; do
  take nightly 900 0 $name "rebuild the index" "db$((RANDOM % 3 + 1))" $((RANDOM % 900 + 100))
  call release "{\"lock\":\"nightly\",\"handle\":\"$(field handle)\"}"
done
take nightly 700 0 eve "rebuild the index" db2 77; sleep 1.2
hold nightly "rebuild the index" "sleep 600"; sleep 0.7
wait_lease() { # LOCK WHO WHY HOST NUMBER
  call acquire "{\"lock\":\"$1\",\"lease_ms\":600000,\"wait_ms\":600000,\"poll_ms\":20,\"who\":\"$2\",\"why\":\"$3\",\"host\":\"$4\",\"pid\":$5,\"request\":\"00000000-0000-4000-8000-$(printf %012d "$5")\",\"handle\":\"h$5\"}"
}
wait_lease nightly bob "verify last night" db2 77
wait_lease nightly cron "nightly at two" db3 9
take db-migrate 600000 0 ci "migrate to schema 41" build4 4121
wait_lease db-migrate deploy "release 2.14" build1 733
take "reports/2026-11" 600000 0 ida "monthly report" app1 551
call semaphore '{"lock":"builders","limit":4}'
for n in 1 2 3; do
  call acquire "{\"lock\":\"builders\",\"mode\":\"permits\",\"permits\":1,\"lease_ms\":600000,\"who\":\"build-$n\",\"host\":\"build$n\",\"pid\":$((100 + n))}"
done
for n in 1 2; do
  call acquire "{\"lock\":\"config\",\"mode\":\"shared\",\"lease_ms\":600000,\"who\":\"api-$n\",\"host\":\"api$n\"}"
done
call acquire '{"lock":"<img src=x onerror=alert(1)>","lease_ms":600000,"who":"<b>mallory</b>","why":"\u202egnp.exe\u200b"}'
call sessions '{"handle":"s1","ttl_ms":600000,"who":"scheduler","host":"app2","pid":90}'
session=$(field session)
call acquire "{\"session\":\"$session\",\"handle\":\"s1\",\"request\":\"1\",\"locks\":[{\"lock\":\"cache\"},{\"lock\":\"search\"}]}"
call acquire "{\"session\":\"$session\",\"handle\":\"s1\",\"request\":\"2\",\"lock\":\"db-migrate\",\"wait_ms\":600000,\"poll_ms\":20}"
for n in $(seq 1 40); do
  call acquire "{\"lock\":\"tenant/$(printf %03d "$n")\",\"lease_ms\":600000,\"who\":\"sync\",\"host\":\"app$((n % 4))\",\"pid\":$((n + 400))}"
done

mkdir -p "$shots"
NODE_PATH="${NODE_MODULES_DIR:-.}/node_modules" URL=$url SESSION=$session TOKEN=$(cat "$work/token") SHOTS=$shots \
  RULES=$work/auth.toml NODES=$nodes BINARY=$bin REPORT=$work/drill.html node scripts/page/judge.cjs
printf 'screenshots in %s\n' "$shots"
