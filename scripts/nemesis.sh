#!/usr/bin/env bash
# Strikes three real nodes at random while clients contend, for as long as you like; a checker then judges what was seen.
#
#   scripts/nemesis.sh --for 20m                     every kind of fault
#   scripts/nemesis.sh --for 5m --faults pause,stop  only some of them
#   scripts/nemesis.sh --for 5m --seed 7             the choices of an earlier run (its timing is the machine's)
#
# Without root:   kill (-9), pause (SIGSTOP), stop (as planned), descriptors (no more of them)
# With root:      partition, oneway (deaf, or unheard by the others), peerscut (cut off, but not from clients): ip, nsenter
#                 fulldisk, power (what was not synced is lost): mkfs.ext4, mount, perl
#                 slowdisk, failedsync: strace    clock (the wall clock is set): libfaketime    starve (a 20th of a processor)
# What cannot be done on a machine is told and left out; with LOCKKEEPER_SKIP_NO_FAULT=1 it fails the run.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 64; }

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
