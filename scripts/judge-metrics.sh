#!/usr/bin/env bash
# Judges the metrics with promtool, of Prometheus: the rules and their tests, the config in the manual, the expressions
# of the dashboard, and the metrics of three nodes that have worked. Also judges the frames of `top`, which reads these
# metrics, with tmux: they fit terminals of 80 and 120 columns. Without tmux, this is skipped with a message.
#   scripts/judge-metrics.sh                all of this, in about half a minute
#   scripts/judge-metrics.sh cost [ROUNDS]  what a scrape each second costs: pairs a second of 64 clients, with and without
# Needs `promtool` (Debian's package prometheus) and `curl` on the PATH. LOCKKEEPER_BIN names another
# binary, and PORT_BASE another port than 7600 for three nodes.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${LOCKKEEPER_BIN:-target/release/lockkeeper}
base=${PORT_BASE:-7600}
ports=($((base + 21)) $((base + 22)) $((base + 23)))
export LOCKKEEPER_ENDPOINTS=127.0.0.1:$((base + 1)),127.0.0.1:$((base + 2)),127.0.0.1:$((base + 3))
work=$(mktemp -d) nodes=""
end() {
  if [ -S "$work/tmux" ]; then terminal kill-server || true; fi
  if [ -n "$nodes" ]; then kill "$nodes"; wait "$nodes" || true; fi
  rm -rf "$work"
}
trap end EXIT
terminal() { tmux -u -S "$work/tmux" -f "$work/tmux.conf" "$@"; }
start() {
  "$bin" dev --dir "$work/data" --port-base "$base" > "$work/log" 2>&1 &
  nodes=$!
  for _ in {1..100}; do "$bin" status > /dev/null 2>&1 && return; sleep 0.1; done
  cat "$work/log" >&2
  exit 1
}

metrics() { curl -sS --fail --retry 5 --retry-connrefused "http://127.0.0.1:$1/metrics"; }
cost() {
  local round with without
  for round in $(seq "${1:-5}"); do
    without=$(pairs)
    (while sleep 1; do for port in "${ports[@]}"; do metrics "$port" > /dev/null; done; done) &
    local scraper=$!
    with=$(pairs)
    kill $scraper; wait $scraper 2> /dev/null || true
    awk -v round="$round" -v with="$with" -v without="$without" \
      'BEGIN { printf "round %d: %d pairs/s without a scrape, %d with one, ratio %.3f\n", round, without, with, with / without }'
  done | tee "$work/rounds"
  awk '{ print $NF }' "$work/rounds" | sort -n | awk '{ all[NR] = $1 } END { print "median ratio " all[int((NR + 1) / 2)] }'
}
pairs() {
  "$bin" bench --workload pairs --clients 64 --secs 10 --json | grep -o '"pairs_per_second":[0-9.]*' | head -1 | cut -d: -f2
}

# shellcheck disable=SC2016 # The programs of sed have backquotes and dollar signs.
judge() {
  local rules=scripts/monitoring/alerts.yml
  promtool check rules "$rules"
  promtool test rules scripts/monitoring/alerts_test.yml
  # The config names the file of the rules, and would be valid if it were empty.
  cp "$rules" "$work"
  sed -n '/^```yaml$/,/^```$/{//!p}' src/manual/monitoring.md > "$work/prometheus.yml"
  grep -q '^scrape_configs:' "$work/prometheus.yml"
  promtool check config "$work/prometheus.yml"
  # Each expression of the dashboard becomes a rule, which promtool parses.
  {
    printf 'groups:\n- name: dashboard\n  rules:\n'
    grep -o '"expr": "\([^"\\]\|\\.\)*"' scripts/monitoring/dashboard.json |
      sed 's/\$__rate_interval/1m/g; s/\$job/lockkeeper/g; s/^"expr": /  - record: dashboard:panel\n    expr: /' |
      awk '/record/ { $0 = $0 (++n) } { print }'
  } > "$work/dashboard.yml"
  promtool check rules "$work/dashboard.yml"

  start
  "$bin" bench --workload handoff --clients 8 --secs 3 > /dev/null
  "$bin" bench --workload sessions --clients 8 --secs 1 > /dev/null || true
  for port in "${ports[@]}"; do
    metrics "$port" > "$work/metrics"
    promtool check metrics < "$work/metrics"
    printf 'port %s: %d series, and nothing to complain about\n' "$port" "$(grep -vc '^#' "$work/metrics")"
  done
  top
}

# Each frame has its headings and a lock, whose long name has wide characters. A line that is wider than the terminal
# wraps there, and tmux joins it.
top() {
  if ! command -v tmux > /dev/null; then echo "SKIPPED: tmux is missing, so no frame of top is judged" >&2; return; fi
  local columns frame who=每夜的索引/each-tenant-and-each-region-is-rebuilt-and-compared-with-the-previous-night
  printf 'set -g %s\n' 'status off' 'remain-on-exit on' > "$work/tmux.conf"
  curl -sS --fail -o /dev/null -H content-type:application/json "http://127.0.0.1:${ports[0]}/v1/ns/default/acquire" \
    -d "{\"lock\":\"$who\",\"lease_ms\":600000,\"who\":\"$who\"}"
  for columns in 80 120; do
    terminal new-session -d -s "top$columns" -x "$columns" -y 24 "$bin" top 每夜
    for _ in {1..100}; do
      frame=$(shown)
      if [[ $frame == *" STATE"*每夜* ]]; then break; fi
      sleep 0.1
    done
    if [[ $frame != *" leads, term "*"NODE ROLE "*" NOT COUNTED"*"  LOCK "*" STATE"*每夜* ]] ||
      [ "$(terminal display-message -p -t "top$columns" '#{pane_width}')" != "$columns" ] ||
      [ "$(shown | wc -l)" != "$(shown -J | wc -l)" ]; then
      printf 'top does not fit %s columns:\n%s\n' "$columns" "$frame" >&2
      exit 1
    fi
    printf 'top fits %s columns\n' "$columns"
  done
}
shown() { terminal capture-pane -p -t "top$columns" "$@"; }

case ${1-} in
  "") judge ;;
  cost)
    start
    cost "${2-}"
    ;;
  *) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 64 ;;
esac
