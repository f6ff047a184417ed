#!/usr/bin/env bash
# Starts, kills and restarts three nodes as processes on this machine.
#   cluster/run.sh start | stop | status | kill N | restart N
# LOCKKEEPER_BIN names another binary. Data, logs and process ids are in cluster/data.
set -euo pipefail
cd "$(dirname "$0")/.."
data=cluster/data
bin=${LOCKKEEPER_BIN:-target/release/lockkeeper}

usage() { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 64; }

need_binary() {
  [ -x "$bin" ] && return
  if [ -n "${LOCKKEEPER_BIN:-}" ]; then echo "no executable at $bin; set LOCKKEEPER_BIN to one" >&2; exit 64; fi
  echo "building $bin" >&2
  cargo build --release --locked
}

pid_of() { cat "$data/n$1/pid" 2>/dev/null || true; }
alive() { local pid; pid=$(pid_of "$1"); [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; }

start_node() {
  if alive "$1"; then echo "node $1 runs already (process $(pid_of "$1"))"; return; fi
  mkdir -p "$data/n$1"
  # The log of this start begins at the current end of the file.
  touch "$data/n$1/log"; wc -c < "$data/n$1/log" > "$data/n$1/log.before"
  nohup "$bin" serve --config "cluster/n$1/lockkeeper.toml" >> "$data/n$1/log" 2>&1 < /dev/null &
  echo $! > "$data/n$1/pid"
}

said() { tail -c "+$(($(cat "$data/n$1/log.before") + 1))" "$data/n$1/log"; }

# Waits until a started node serves. Prints the last lines of its log if it ends at once.
await_start() {
  for _ in $(seq 100); do
    if said "$1" | grep -q "serving node=$1"; then
      echo "node $1 started (process $(pid_of "$1"), log $data/n$1/log)"
      return
    fi
    if ! alive "$1"; then echo "node $1 ended at once:" >&2; said "$1" | tail -n 3 >&2; return 1; fi
    sleep 0.1
  done
  echo "node $1 runs, but does not serve after 10 s: $data/n$1/log shows why" >&2
  return 1
}

start_nodes() {
  local failed=0
  for n in "$@"; do start_node "$n"; done
  for n in "$@"; do [ ! -f "$data/n$n/log.before" ] || await_start "$n" || failed=1; rm -f "$data/n$n/log.before"; done
  return "$failed"
}

# Waits until the process has ended. Before that a node transfers leadership and closes its files.
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
  start) need_binary; start_nodes 1 2 3 ;;
  stop) for n in 1 2 3; do stop_node "$n"; done ;;
  kill) is_node "${2:-}"; kill_node "$2" ;;
  restart) is_node "${2:-}"; need_binary; if alive "$2"; then stop_node "$2"; fi; start_nodes "$2" ;;
  status)
    for n in 1 2 3; do
      if alive "$n"; then echo "node $n runs (process $(pid_of "$n"))"; else echo "node $n does not run"; fi
    done
    need_binary; "$bin" status || true ;;
  *) usage ;;
esac
