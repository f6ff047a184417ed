#!/usr/bin/env bash
# The same lock workloads on lockkeeper, etcd, ZooKeeper and Redis, in turn, on this machine. See README.md.
#
#   scripts/compare/run.sh                  five rounds, about an hour and a half; tables on standard output
#   scripts/compare/run.sh --quick          one short round, as a check
#   scripts/compare/run.sh --rounds 3       another number of rounds
#   scripts/compare/run.sh --install        installs missing packages first (Debian, root); no service stays running
#
# Further options go to the program: --products, --workloads, --foreign CORES, --out DIR, --data DIR, --help.
# To use other builds, set LOCKKEEPER_BIN, ETCD, REDIS_SERVER or JAVA to a program, or ZOOKEEPER_CLASSPATH to jars.
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

# The Debian packages of missing programs, except of products for which the caller names another build.
wanted() { [ -z "$products" ] || [[ ,$products, == *,$1,* ]]; }
missing=()
lacks() { ! command -v "$1" > /dev/null; }
# On Debian the compiler's own .proto files are in a separate package.
has_own_protos() { echo 'syntax = "proto3"; import "google/protobuf/descriptor.proto";' | protoc -I/dev /dev/stdin -o /dev/null; }
lacks protoc && missing+=(protobuf-compiler)
has_own_protos 2> /dev/null || missing+=(libprotobuf-dev)
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
  [ "$(id -u)" = 0 ] || { echo "installation needs root: $command" >&2; exit 77; }
  # Prevents the packages from starting their servers.
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
# Without --locked, because the dependencies of the crate may have changed since.
cargo build --release --manifest-path "$here/Cargo.toml" --target-dir "$here/target"

if [ $quick = yes ]; then
  rounds=${rounds:-1} out=${out:-$here/target/quick}
fi
# Every client has its own connection.
ulimit -n "$(ulimit -Hn)"
exec "$here/target/release/lockkeeper-compare" --rounds "${rounds:-5}" --out "${out:-$here/results}" \
  --data "${data:-$here/target/data}" "${others[@]}"
