#!/usr/bin/env bash
# Injects faults into three real nodes at random while clients contend; a checker then verifies the recorded history.
#
#   scripts/nemesis.sh --for 20m                     every kind of fault
#   scripts/nemesis.sh --for 5m --faults pause,stop  only some of them
#   scripts/nemesis.sh --for 5m --seed 7             the choices of an earlier run (timing still varies)
#
# Without root:   kill (SIGKILL), pause (SIGSTOP), stop (SIGTERM), descriptors (no free file descriptors)
# With root, and the programs after the colon:
#                 partition, oneway (receives or sends nothing), peerscut (no link to other nodes): ip, nsenter
#                 fulldisk, power (unsynced writes are lost): mkfs.ext4, mount, perl
#                 slowdisk, failedsync: strace    clock (the wall clock is set): libfaketime
#                 starve (a 20th of a processor)
# Unsupported faults are printed and skipped; with LOCKKEEPER_SKIP_NO_FAULT=1 they fail the run.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 64; }

seconds() {
  case $1 in
    *[!0-9smh]* | "") usage ;;
    *h) echo $((${1%h} * 3600)) ;;
    *m) echo $((${1%m} * 60)) ;;
    *) echo "${1%s}" ;;
  esac
}

length=60 faults="" seed=""
while [ $# -gt 0 ]; do
  case $1 in
    --for) length=$(seconds "${2-}") ;;
    --faults) faults=${2:?} ;;
    --seed) seed=${2:?} ;;
    *) usage ;;
  esac
  shift 2
done

export LOCKKEEPER_CRASH_SECS=$length LOCKKEEPER_CRASH_FAULTS=$faults
if [ -n "$seed" ]; then export LOCKKEEPER_CRASH_SEED=$seed; fi
exec cargo test --locked --test processes nothing_is_lost_or_held_twice -- --nocapture
