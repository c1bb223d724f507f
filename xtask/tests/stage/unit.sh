# What systemd does with the unit: its command line with its capabilities and its directory of logs, and it waits for the word that all is
# ready.
packaging=$(dirname "$0")/packaging
of_unit() {
    sed -n "s/^$1=//p" "$packaging/godwitd.service"
}
mount -t tmpfs tmpfs /var/log
mkdir "/var/log/$(of_unit LogsDirectory)"
bounds=-all
for capability in $(of_unit CapabilityBoundingSet | tr '[:upper:]' '[:lower:]'); do
    bounds=$bounds,+${capability#cap_}
done
set -- $(of_unit ExecStart)
program=$(command -v "$(basename "$1")")
shift
setpriv --bounding-set="$bounds" --no-new-privs "$program" "$@" >/home/godwitd.out 2>&1 </dev/null &
until grep -q '^listening on' /home/godwitd.out; do
    kill -0 $! || { cat /home/godwitd.out; exit 1; }
    sleep 0.05
done
