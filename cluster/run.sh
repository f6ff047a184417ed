#!/usr/bin/env bash
# Three nodes as three processes on this machine, to start, kill and restart by hand.
#   cluster/run.sh start | stop | status | kill N | restart N
# LOCKKEEPER_BIN names another binary; data, logs and process ids live in cluster/data.
set -euo pipefail
cd "$(dirname "$0")/.."
data=cluster/data
bin=${LOCKKEEPER_BIN:-target/release/lockkeeper}

usage() { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 64; }

need_binary() {
  [ -x "$bin" ] && return
  if [ -n "${LOCKKEEPER_BIN:-}" ]; then echo "no program at $bin: LOCKKEEPER_BIN names one that can be run" >&2; exit 64; fi
  echo "building $bin" >&2
  cargo build --release --locked
}

pid_of() { cat "$data/n$1/pid" 2>/dev/null || true; }
alive() { local pid; pid=$(pid_of "$1"); [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; }

start_node() {
  if alive "$1"; then echo "node $1 runs already (process $(pid_of "$1"))"; return; fi
  mkdir -p "$data/n$1"
  nohup "$bin" serve --config "cluster/n$1/lockkeeper.toml" >> "$data/n$1/log" 2>&1 < /dev/null &
  echo $! > "$data/n$1/pid"
  echo "node $1 started (process $!, log $data/n$1/log)"
}

# Waits until the process is gone; a node hands over leadership and closes its files first.
await_end() {
  for _ in $(seq 100); do alive "$1" || return 0; sleep 0.1; done
  echo "node $1 is still running after 10 s: cluster/run.sh kill $1" >&2
  return 1
}

stop_node() {
  if ! alive "$1"; then echo "node $1 does not run"; return; fi
  kill "$(pid_of "$1")"
  await_end "$1" && echo "node $1 stopped"
}

kill_node() {
  if ! alive "$1"; then echo "node $1 does not run"; return; fi
  kill -9 "$(pid_of "$1")"
  await_end "$1" && echo "node $1 killed"
}

is_node() { case ${1:-} in 1|2|3) ;; *) echo "which node? 1, 2 or 3" >&2; usage ;; esac; }

case ${1:-} in
  start) need_binary; for n in 1 2 3; do start_node "$n"; done ;;
  stop) for n in 1 2 3; do stop_node "$n"; done ;;
  kill) is_node "${2:-}"; kill_node "$2" ;;
  restart) is_node "${2:-}"; need_binary; if alive "$2"; then stop_node "$2"; fi; start_node "$2" ;;
  status)
    for n in 1 2 3; do
      if alive "$n"; then echo "node $n runs (process $(pid_of "$n"))"; else echo "node $n does not run"; fi
    done
    need_binary; "$bin" status || true ;;
  *) usage ;;
esac
