#!/usr/bin/env bash
# Judges the packages with tools of other projects.
#   scripts/judge-packages.sh [--no-build BINARY] [deb | oci | manifests]...     all three without a word
# deb        lintian, systemd-analyze, and the life of the package: install, start, lock, reload, hang, wrong config,
#            upgrade, remove, purge. A copy of this machine boots for it with systemd, and this machine stays as it is.
#            Needs root, cargo-deb, systemd-nspawn and man-db.
# oci        an image in the OCI layout, which umoci unpacks; three nodes run in its root, with the configs of compose and
#            Kubernetes. Needs root, buildah, umoci, curl and iproute2.
# manifests  kubernetes-validate and docker-compose read the manifests. Needs PyPI and docker-compose.
set -euo pipefail
case ${1:-} in inside) ;; *) cd "$(dirname "$0")/.." ;; esac
binary=()
if [ "${1:-}" = --no-build ]; then binary=("$(realpath "$2")"); shift 2; fi
[ $# -gt 0 ] || set -- deb oci manifests
work=$(mktemp -d)
chmod 755 "$work"
started=()
end() {
  for process in "${started[@]}"; do kill "$process" 2> /dev/null || true; done
  wait
  rm -rf "$work"
}
trap end EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
passed() { echo "passed: $*"; }
# Waits up to 20 s until a command succeeds.
await() { for _ in {1..200}; do if "$@" > /dev/null 2>&1; then return; fi; sleep 0.1; done; fail "not in time: $*"; }

# The newest text that the node has reported to systemd, or another property of the unit.
shown() { systemctl show --value --property "${1:-StatusText}" lockkeeper; }
leads() { [ "$(shown)" = "node 1 leads" ]; }
is() { [ "$(shown "$1")" = "$2" ]; }
reloaded() { journalctl --unit lockkeeper | grep "reloaded the config"; }

# Runs in the copy of the machine.
inside() {
  local package=$1 config=/etc/lockkeeper/lockkeeper.toml token before
  # Images of containers and of virtual machines often forbid packages to start programs.
  rm -f /usr/sbin/policy-rc.d
  dpkg -i "$package" > /dev/null
  [ ! -e /var/lib/lockkeeper ] || fail "the installation founded a cluster"
  is ActiveState inactive && is UnitFileState disabled || fail "the installation started the node"
  systemd-analyze verify lockkeeper.service 2>&1 | { ! grep lockkeeper; } || fail "systemd-analyze verify"
  systemd-analyze security --threshold=20 lockkeeper.service > /tmp/security || fail "$(tail -n 1 /tmp/security)"
  passed "systemd-analyze: $(tail -n 1 /tmp/security)"
  for file in /usr/share/bash-completion/completions/lockkeeper /usr/share/lockkeeper/proto/lockkeeper/v1/locks.proto \
    /usr/share/lockkeeper/monitoring/alerts.yml /usr/share/doc/lockkeeper/manual/config.md; do
    [ -s "$file" ] || fail "there is no $file"
  done
  man --warnings lockkeeper 2> /tmp/warnings | grep "lockkeeper acquire" > /dev/null || fail "the man page lacks a command"
  [ ! -s /tmp/warnings ] || fail "the man page: $(head -n 3 /tmp/warnings)"
  lockkeeper config check "$config"

  systemctl start lockkeeper
  await leads
  [ "$(lockkeeper lock nightly -- echo "only me")" = "only me" ] || fail "lock"
  token=$(lockkeeper acquire kept --for 10m --handle secret | cut -d' ' -f1)
  before=$(tr '\t\n' ' ' < "/proc/$(shown MainPID)/status")
  for part in 'CapEff: 0000000000000000' 'NoNewPrivs: 1' 'Seccomp: 2'; do [[ $before == *$part* ]] || fail "not $part"; done
  ! su -s /bin/sh nobody -c 'ls /var/lib/lockkeeper' 2> /dev/null || fail "other users can read the data"
  systemctl reload lockkeeper
  await reloaded
  await is ActiveState active
  passed "install, start, lock, reload"

  mkdir /run/systemd/system/lockkeeper.service.d
  printf '[Service]\nWatchdogSec=1\n' > /run/systemd/system/lockkeeper.service.d/judge.conf
  systemctl daemon-reload
  systemctl restart lockkeeper
  await leads
  sleep 3
  is NRestarts 0 || fail "the watchdog ended a node that works"
  kill -STOP "$(shown MainPID)"
  await is NRestarts 1
  await leads
  journalctl --unit lockkeeper | grep "Watchdog timeout" > /dev/null || fail "the watchdog did not end the node"
  kill -KILL "$(shown MainPID)"
  await is NRestarts 2
  await leads
  lockkeeper check kept "$token" > /dev/null || fail "a restart lost a lock"
  passed "a node that hangs or is killed is started again, and the lock has its token $token"

  cp "$config" /tmp/config
  echo "unknown = 1" >> "$config"
  ! systemctl restart lockkeeper 2> /dev/null || fail "a node started with a wrong config"
  is ExecMainStatus 64 && is ActiveState failed && is NRestarts 0 || fail "a wrong config: $(systemctl status lockkeeper)"
  cp /tmp/config "$config"
  systemctl start lockkeeper
  await leads
  passed "a wrong config is reported once"

  cp /lib/systemd/system/lockkeeper.service /run/systemd/system/second.service
  systemctl daemon-reload
  ! systemctl start second 2> /dev/null || fail "two nodes started with one config"
  systemctl stop second
  journalctl --unit second | grep "(process $(shown MainPID)) listens there" > /dev/null || fail "the sandbox hides which process has the port"
  passed "a second node names the process that has its port"

  echo "# a line of the operator" >> "$config"
  before=$(shown MainPID)
  dpkg -i "$package" > /dev/null
  [ "$before" != "$(shown MainPID)" ] || fail "the upgrade left the old program running"
  await leads
  grep -q "a line of the operator" "$config" || fail "the upgrade replaced the config"
  lockkeeper check kept "$token" > /dev/null || fail "the upgrade lost a lock"
  systemctl stop lockkeeper
  is Result success && is ExecMainStatus 0 || fail "the node ended with $(shown ExecMainStatus)"
  passed "upgrade, stop"

  systemctl enable --now --quiet lockkeeper
  dpkg --remove lockkeeper > /dev/null 2>&1
  ! pgrep -x lockkeeper || fail "the removal left the node running"
  if [ ! -e "$config" ] || [ ! -e /var/lib/lockkeeper/node ]; then fail "the removal removed config or data"; fi
  dpkg --purge lockkeeper > /tmp/purge 2>&1
  [ ! -e /etc/lockkeeper ] || fail "the purge left the config"
  [ -d /var/lib/lockkeeper/node ] || fail "the purge removed the data"
  grep -q "/var/lib/lockkeeper has the data of a node" /tmp/purge || fail "the purge is silent about the data: $(cat /tmp/purge)"
  ! ls /etc/systemd/system/*/lockkeeper.service 2> /dev/null || fail "the purge left the unit enabled"
  rm -r /var/lib/lockkeeper
  dpkg -i "$package" > /dev/null
  dpkg --purge lockkeeper > /dev/null 2>&1
  passed "remove, purge: the data stays until its operator removes it"
}

# Boots a copy of this machine, in which systemd runs `inside`. Writes reach only a file system in memory.
boot() {
  local at=$1
  umount -R /sys/fs/cgroup
  mount -t cgroup2 none /sys/fs/cgroup
  mkdir "$at/memory"
  mount -t tmpfs none "$at/memory"
  mkdir "$at/memory/"{changes,work,root}
  mount -t overlay none -o "lowerdir=/,upperdir=$at/memory/changes,workdir=$at/memory/work" "$at/memory/root"
  cat > "$at/memory/root/etc/systemd/system/judge.service" << END
[Unit]
Requires=basic.target
After=basic.target
SuccessAction=exit
FailureAction=exit
[Service]
Type=oneshot
ExecStart=/bin/bash /judge/judge.sh inside /judge/lockkeeper.deb
StandardOutput=append:/judge/output
StandardError=append:/judge/output
END
  SYSTEMD_LOG_LEVEL=err timeout 300 systemd-nspawn --quiet --register=no --keep-unit --private-network --link-journal=no \
    --directory "$at/memory/root" --bind="$at/shared:/judge" --boot systemd.unit=judge.service
}

deb() {
  local package
  package=$(scripts/packaging/deb.sh "${binary[@]}")
  lintian --allow-root --fail-on error,warning "$package" || fail lintian
  passed "lintian: $(dpkg-deb --field "$package" Package Version Installed-Size Depends | tr '\n' ' ')"
  mkdir "$work/shared"
  cp "$package" "$work/shared/lockkeeper.deb"
  cp scripts/judge-packages.sh "$work/shared/judge.sh"
  unshare --mount --propagation private bash scripts/judge-packages.sh boot "$work" > "$work/console" 2>&1 < /dev/null ||
    { cat "$work/shared/output" || tail -n 20 "$work/console"; fail "the life of the package"; }
  cat "$work/shared/output"
}

# Runs three nodes with the config of a manifest, each in a root and a network of its own, as compose and Kubernetes do.
#   three_nodes DIRECTORY NAME URL [VARIABLE=VALUE]...     N in the name of a host or in a value is the id of the node
three_nodes() {
  local at=$1 host=$2 url=$3 n root
  shift 3
  mkdir -p /run/netns
  mount -t tmpfs none /run/netns
  ip link add bridge0 type bridge
  ip addr add 10.213.0.254/24 dev bridge0
  ip link set bridge0 up
  for n in 1 2 3; do
    root=$at/$n/rootfs
    ip netns add "pod$n"
    ip link add "to$n" type veth peer name eth0 netns "pod$n"
    ip link set "to$n" master bridge0 up
    ip -n "pod$n" addr add "10.213.0.$n/24" dev eth0
    ip -n "pod$n" link set eth0 up
    ip -n "pod$n" link set lo up
    for other in 1 2 3; do echo "10.213.0.$other ${host//N/$other}"; done > "$root/etc/hosts"
    ip netns exec "pod$n" env -i "LOCKKEEPER_NODE=$n" "${@//N/$n}" /usr/sbin/chroot --userspec=65532:65532 "$root" \
      /usr/bin/lockkeeper serve --config /etc/lockkeeper/lockkeeper.toml 2> "$at/$n/log" &
    started+=($!)
  done
  for n in 1 2 3; do
    (await curl -sSk --fail "$url://10.213.0.$n:7620/readyz") || fail "node $n: $(tail -n 3 "$at/$n/log")"
    curl -sSk --fail "$url://10.213.0.$n:7620/healthz" > /dev/null || fail "node $n is not healthy"
  done
  env -i LOCKKEEPER_ENDPOINTS="${host//N/1}:7600,${host//N/2}:7600,${host//N/3}:7600" \
    $([ "$url" = http ] || printf 'LOCKKEEPER_%s ' CA=/etc/ci/ca.pem CERT=/etc/ci/client-ci.pem KEY=/etc/ci/client-ci.key) \
    /usr/sbin/chroot --userspec=65532:65532 "$at/1/rootfs" /usr/bin/lockkeeper acquire nightly --for 1m > /dev/null || fail "acquire"
  # Programs outside do not know the names of the nodes.
  [ "$url" = https ] || "$at/1/rootfs/usr/bin/lockkeeper" --endpoints 10.213.0.1:7600,10.213.0.2:7600,10.213.0.3:7600 \
    lock other -- true || fail "lock from outside"
  kill -TERM "${started[0]}"
  wait "${started[0]}" || fail "node 1 ended with $?: $(tail -n 3 "$at/1/log")"
  await curl -sSk --fail "$url://10.213.0.2:7620/readyz"
}

oci() {
  local user size n root
  scripts/packaging/oci/build.sh "$work/image" "${binary[@]}" > "$work/built" 2>&1 || fail "$(tail -n 5 "$work/built")"
  for kind in compose kubernetes; do
    for n in 1 2 3; do
      mkdir -p "$work/$kind"
      umoci unpack --image "$work/image:$(umoci list --layout "$work/image")" "$work/$kind/$n" > /dev/null 2>&1
    done
  done
  user=$(python3 -c 'import json, sys; p = json.load(open(sys.argv[1]))["process"]
assert p["args"] == ["/usr/bin/lockkeeper", "serve", "--config", "/etc/lockkeeper/lockkeeper.toml"], p["args"]
print("{uid}:{gid}".format(**p["user"]))' "$work/compose/1/config.json")
  [ "$user" = 65532:65532 ] || fail "the image runs as $user"
  root=$work/compose/1/rootfs
  size=$(du -s --apparent-size --block-size=1M "$root" | cut -f1)
  passed "oci: $user, $size MB: $(cd "$root" && find . -type f -printf '%f ')"

  for n in 1 2 3; do cp scripts/packaging/compose/lockkeeper.toml "$work/compose/$n/rootfs/etc/lockkeeper"; done
  unshare --mount --net bash scripts/judge-packages.sh three_nodes "$work/compose" nN http
  passed "oci: three nodes with the config of compose"

  # The certificates and rules that the manual makes, and the files and modes with which Kubernetes mounts them.
  (cd "$work" && eval "$(sed -n "s#^lockkeeper \(certs certs\|auth init\)#'$work/compose/1/rootfs/usr/bin/lockkeeper' \1#p" "$OLDPWD/src/manual/packages.md")" > /dev/null)
  for n in 1 2 3; do
    root=$work/kubernetes/$n/rootfs/etc
    sed -n '/lockkeeper.toml: |/,/^---/s/^    //p' scripts/packaging/kubernetes/lockkeeper.yaml > "$root/lockkeeper/lockkeeper.toml"
    install -D -m 440 -g 65532 -t "$root/lockkeeper-tls" "$work"/certs/{ca.pem,refused.txt,node-*}
    install -D -m 440 -g 65532 -t "$root/lockkeeper-auth" "$work/auth.toml"
    install -D -m 440 -g 65532 -t "$root/ci" "$work"/certs/{ca.pem,client-ci.*}
  done
  unshare --mount --net bash scripts/judge-packages.sh three_nodes "$work/kubernetes" lockkeeper-N.lockkeeper https \
    LOCKKEEPER_TLS__CERT=/etc/lockkeeper-tls/node-N.pem LOCKKEEPER_TLS__KEY=/etc/lockkeeper-tls/node-N.key
  passed "oci: three nodes with the config and the certificates of Kubernetes"
}

manifests() {
  local tools=$work/tools version
  python3 -m venv "$tools" && "$tools/bin/pip" install -q kubernetes-validate
  for version in 1.28 1.37; do
    "$tools/bin/kubernetes-validate" --strict --kubernetes-version "$version" scripts/packaging/kubernetes/lockkeeper.yaml || fail "Kubernetes $version"
  done
  # The schema is closed: a key that does not exist is found.
  sed 's/serviceName:/serviceNames:/' scripts/packaging/kubernetes/lockkeeper.yaml > "$work/wrong.yaml"
  ! "$tools/bin/kubernetes-validate" --strict "$work/wrong.yaml" > /dev/null 2>&1 || fail "a wrong key is not found"
  docker-compose -f scripts/packaging/compose/compose.yaml config > "$work/compose.yaml" 2>&1 || fail "$(cat "$work/compose.yaml")"
  passed "manifests"
}

case $1 in boot | inside | three_nodes) "$@"; exit ;; esac
for part in "$@"; do
  case $part in deb | oci | manifests) "$part" ;; *) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 64 ;; esac
done
