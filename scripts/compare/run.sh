#!/usr/bin/env bash
# The same lock workloads on lockkeeper, etcd, ZooKeeper and Redis, in turn, on this machine. See README.md beside this file.
#
#   scripts/compare/run.sh                  five rounds, about an hour and a half; tables on standard output
#   scripts/compare/run.sh --quick          one short round: shows that everything works
#   scripts/compare/run.sh --rounds 3       with another number of rounds
#   scripts/compare/run.sh --install        installs what is missing first (Debian, root); nothing of it is left running
#
# Further options go to the program: --products, --workloads, --foreign CORES, --out DIR, --data DIR, --help.
# Other builds: LOCKKEEPER_BIN, ETCD, REDIS_SERVER, JAVA name programs, ZOOKEEPER_CLASSPATH its jars.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

install=no quick=no rounds="" out="" data="" products="" others=()
while [ $# -gt 0 ]; do
  case $1 in
    --install) install=yes ;;
    --quick) quick=yes; others+=(--quick) ;;
    --rounds) rounds=${2:?how many rounds?}; shift ;;
    --out) out=${2:?which folder?}; shift ;;
    --data) data=${2:?which folder?}; shift ;;
    --products) products=${2:?which ones?}; others+=(--products "$2"); shift ;;
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) others+=("$1") ;;
  esac
  shift
done

# Debian's packages of what is missing; nothing where the caller names a build of his own.
wanted() { [ -z "$products" ] || [[ ,$products, == *,$1,* ]]; }
missing=()
lacks() { ! command -v "$1" > /dev/null; }
# Debian has the compiler's own .proto files in a package that it only recommends.
knows_its_own() { echo 'syntax = "proto3"; import "google/protobuf/descriptor.proto";' | protoc -I/dev /dev/stdin -o /dev/null; }
lacks protoc && missing+=(protobuf-compiler)
knows_its_own 2> /dev/null || missing+=(libprotobuf-dev)
wanted etcd && lacks "${ETCD:-etcd}" && missing+=(etcd-server)
wanted redis && lacks "${REDIS_SERVER:-redis-server}" && missing+=(redis-server)
if wanted zookeeper; then
  lacks "${JAVA:-java}" && missing+=(default-jre-headless)
  [ -n "${ZOOKEEPER_CLASSPATH:-}" ] || [ -e /usr/share/java/zookeeper.jar ] || missing+=(zookeeper)
fi

if [ ${#missing[@]} -gt 0 ]; then
  command="apt-get install --no-install-recommends ${missing[*]}"
  if [ $install = no ]; then
    echo "missing here: ${missing[*]}" >&2
    echo "  scripts/compare/run.sh --install would run, as root: $command" >&2
    exit 69
  fi
  [ "$(id -u)" = 0 ] || { echo "installing needs root: $command" >&2; exit 77; }
  # The packages would start servers of their own, which this keeps from happening.
  policy=/usr/sbin/policy-rc.d made=no
  if [ ! -e $policy ]; then printf '#!/bin/sh\nexit 101\n' > $policy; chmod +x $policy; made=yes; fi
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $command -y -qq
  [ $made = no ] || rm -f $policy
fi

if [ -z "${LOCKKEEPER_BIN:-}" ]; then
  echo "building lockkeeper" >&2
  cargo build --profile dist --locked --manifest-path "$root/Cargo.toml"
  export LOCKKEEPER_BIN=${CARGO_TARGET_DIR:-$root/target}/dist/lockkeeper
fi
"$LOCKKEEPER_BIN" version >&2
echo "building the clients" >&2
# Not locked: the crate is one of its dependencies, and what that needs may have grown since.
cargo build --release --manifest-path "$here/Cargo.toml" --target-dir "$here/target"

if [ $quick = yes ]; then
  rounds=${rounds:-1} out=${out:-$here/target/quick}
fi
# Every client has a connection of its own.
ulimit -n "$(ulimit -Hn)"
exec "$here/target/release/lockkeeper-compare" --rounds "${rounds:-5}" --out "${out:-$here/results}" \
  --data "${data:-$here/target/data}" "${others[@]}"
