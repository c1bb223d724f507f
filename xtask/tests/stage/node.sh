# What systemd does with the unit of a data node, and the network with its address.
packaging=$(dirname "$0")/packaging
for address in 10.0.0.11 10.0.0.12; do
    ip address replace "$address/32" dev lo
    # A client has one address for control and data.
    ip route replace local "$address" dev lo table local src 127.0.0.1
done
# shellcheck disable=SC2046 # words of a command line
set -- $(sed -n 's/^ExecStart=//p' "$packaging/godwitd-node.service")
program=$(command -v "$(basename "$1")")
shift
out=$(mktemp /home/node.XXXXXX)
"$program" "$@" >"$out" 2>&1 </dev/null &
until grep -q '^data node on' "$out"; do
    kill -0 $! || { cat "$out"; exit 1; }
    sleep 0.05
done
