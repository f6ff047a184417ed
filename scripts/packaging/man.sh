#!/usr/bin/env bash
# Prints the man page lockkeeper(1), made of the help of each command.
#   scripts/packaging/man.sh BINARY
set -euo pipefail
bin=$1
help() { env -i COLUMNS=78 "$bin" "$@" --help < /dev/null | sed 's/[^ ]*lockkeeper\b/lockkeeper/; s/\\/\\e/g; s/-/\\-/g; s/^[.'"'"']/\\\&&/'; }
example() { printf '.EX\n'; cat; printf '.EE\n'; }
version=$("$bin" --version)
commands=$("$bin" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | grep -v help)

printf '.TH LOCKKEEPER 1 "" "%s" "User Commands"\n' "$version"
printf '.SH NAME\nlockkeeper \\- replicated lock service: fair queues, fencing tokens, sessions and leases\n'
printf '.SH SYNOPSIS\n.B lockkeeper\n[\\fIOPTIONS\\fR] \\fICOMMAND\\fR\n.SH DESCRIPTION\n'
help | example
for command in $commands; do
  printf '.SH LOCKKEEPER %s\n' "${command^^}"
  help "$command" | sed '/^Common options, see/,$d' | example
  for part in $("$bin" "$command" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | grep -v help || true); do
    printf '.SS lockkeeper %s %s\n' "$command" "$part"
    help "$command" "$part" | sed '/^Common options, see/,$d' | example
  done
done
cat << 'END'
.SH EXIT STATUS
0 done, yes; 1 the answer is no; 64 usage; 65 refused; 69 no cluster or no quorum; 70 internal; 75 not acquired in time;
76 the lock was lost; 77 not permitted. The commands lock and elect otherwise exit as their command does.
.SH FILES
.TP
.I /etc/lockkeeper/lockkeeper.toml
The config of the node that lockkeeper.service starts.
.TP
.I /var/lib/lockkeeper
The data of that node.
.TP
.I /usr/share/doc/lockkeeper/manual
The manual.
END
