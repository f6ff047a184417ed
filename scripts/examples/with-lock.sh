#!/bin/sh
# Runs a command while it holds a lock, with curl only:
#
#   with-lock.sh LOCK COMMAND [ARGUMENT...]
#
# The command gets LOCKKEEPER_LOCK and LOCKKEEPER_TOKEN. If the lock is lost, or no node shows for `silence_ms` that it
# is held, the command gets TERM, and KILL a quarter of the TTL later. If a node stops, the next one continues the hold.
#
#   LOCKKEEPER_HTTP       nodes, separated by commas (default http://127.0.0.1:7621)
#   LOCKKEEPER_NAMESPACE  namespace (default: default)
#   LOCKKEEPER_WAIT_MS    longest wait for the lock (default: no limit but that of the stream)
#   LOCKKEEPER_TTL_MS     how long the lock stays held if this script is killed (default: that of the cluster)
#
# Exit code: that of the command; 64 usage, 65 refused, 69 no node answers, 75 not acquired in time, 76 the lock was
# lost while the command ran, 77 not permitted.
set -u

if [ $# -lt 2 ]; then
    echo "usage: with-lock.sh LOCK COMMAND [ARGUMENT...]" >&2
    exit 64
fi
lock=$1
shift
nodes=$(echo "${LOCKKEEPER_HTTP:-http://127.0.0.1:7621}" | tr , ' ')
path=/v1/ns/${LOCKKEEPER_NAMESPACE:-default}

quoted() { printf '%s' "$1" | sed 's/[\\"]/\\&/g'; }
random() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }
# The value of a field of an event, which is one line.
field() { printf '%s\n' "$2" | sed -n 's/.*"'"$1"'":"\{0,1\}\([^",}]*\).*/\1/p'; }

# The request and the secret name this hold at every node. The secret is in no argument, because all users see those.
secret=$(random)
body="{\"lock\":\"$(quoted "$lock")\",\"request\":\"$(random)\",\"handle\":\"$secret\",\"pid\":$$"
body="$body,\"who\":\"$(quoted "${USER:-}")\",\"host\":\"$(quoted "$(uname -n)")\",\"why\":\"$(quoted "$1")\""
body="$body${LOCKKEEPER_WAIT_MS:+,\"wait_ms\":$LOCKKEEPER_WAIT_MS}${LOCKKEEPER_TTL_MS:+,\"ttl_ms\":$LOCKKEEPER_TTL_MS}}"

# In a pipeline only: it replaces its shell, so that a signal reaches curl.
post() {
    exec curl -sSN --fail-with-body --connect-timeout 2 -w '\n' -d @- -H content-type:application/json \
        -H accept:application/x-ndjson "$1$path/$2"
}

folder=$(mktemp -d) || exit 70
mkfifo "$folder/events" || exit 70

# Writes the events of one node after another, until it is killed.
stream() {
    curl=
    trap 'kill "$curl" 2> /dev/null; exit' TERM
    rounds=0
    while :; do
        for node in $nodes; do
            printf '%s' "$body" | post "$node" hold 2> "$folder/error" &
            curl=$!
            wait "$curl"
            [ $? = 7 ] || rounds=0
        done
        rounds=$((rounds + 1))
        [ "$rounds" -lt 25 ] || echo '{"event":"unreachable"}'
        sleep 0.2
    done
}

exec 3<&0
stream > "$folder/events" < /dev/null &
stream=$!
exec 4< "$folder/events"

finish() {
    kill "$stream" 2> /dev/null
    rm -rf "$folder"
    exit "$1"
}
trap 'finish 130' INT
trap 'finish 143' TERM

# A refusal is a line without an event.
refused() {
    field detail "$1" >&2
    case $(field status "$1") in
    409 | 429) [ "$(field error "$1")" = not-acquired ] && finish 75 ;;
    401 | 403) finish 77 ;;
    400) finish 64 ;;
    esac
    finish 65
}

while read -r event <&4; do
    case $(field event "$event") in
    granted) break ;;
    waiting) echo "waiting for $lock: place $(field place "$event")" >&2 ;;
    lost) finish 75 ;;
    unreachable)
        cat "$folder/error" >&2
        finish 69
        ;;
    '')
        case $(field advice "$event") in
        give_up) refused "$event" ;;
        retry) [ "$(field error "$event")" != not-acquired ] || refused "$event" ;;
        esac
        ;;
    esac
done
session=$(field session "$event")
silence_ms=$(field silence_ms "$event")
beat_ms=$(field beat_ms "$event")
seconds() { printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)); }

LOCKKEEPER_LOCK=$lock LOCKKEEPER_TOKEN=$(field token "$event") "$@" <&3 3<&- 4<&- &
child=$!

lose() {
    : > "$folder/lost"
    kill -TERM "$child" 2> /dev/null
    sleep "$(seconds $((beat_ms * 5 / 4)))"
    kill -KILL "$child" 2> /dev/null
}

# Follows the events. Each of them ends the watchdog and starts a new one.
follow() {
    watchdog=
    trap 'kill "$watchdog" 2> /dev/null; exit' TERM
    while :; do
        (
            trap 'kill "$pause" 2> /dev/null; exit' TERM
            sleep "$(seconds "$silence_ms")" &
            pause=$!
            wait "$pause"
            lose
        ) &
        watchdog=$!
        while read -r event; do
            case $(field event "$event") in
            granted | alive) break ;;
            asked) echo "$(field by "$event") asks for $lock: $(field why "$event")" >&2 ;;
            lost | released | session-ended) break ;;
            '') [ "$(field advice "$event")" != give_up ] || break ;;
            esac
        done
        kill "$watchdog" 2> /dev/null
        case $(field event "$event") in
        granted | alive) ;;
        *)
            why=$(field why "$event")
            echo "$lock was lost: $(field reason "$event")${why:+: $why}" >&2
            lose
            return
            ;;
        esac
    done
}
follow <&4 &
follower=$!

# A signal goes to the command, and the lock is released after its end.
trap 'kill -INT "$child" 2> /dev/null' INT
trap 'kill -TERM "$child" 2> /dev/null' TERM
wait "$child"
code=$?
while kill -0 "$child" 2> /dev/null; do
    wait "$child"
    code=$?
done
kill "$follower" "$stream" 2> /dev/null
if [ -e "$folder/lost" ]; then
    finish 76
fi
for node in $nodes; do
    printf '{"handle":"%s"}' "$secret" | post "$node" "sessions/$session/close" > /dev/null 2>&1 && break
done
finish "$code"
