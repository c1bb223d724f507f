# Runs the commands of one block in one shell, up to the first that fails. $1: where they lie; then their numbers.
place=$1
shift
cd
for number in "$@"; do
    command=$(cat "$place/$number.command")
    eval "$command" >"$place/$number.output" 2>&1 </dev/null
    status=$?
    echo "$status" >"$place/$number.status"
    [ "$status" = 0 ] || exit 0
    case $command in
    # Whoever types has seen that it runs before typing on.
    *'&') until [ -s "$place/$number.output" ]; do kill -0 $! 2>/dev/null || exit 0; sleep 0.05; done ;;
    esac
done
