#!/bin/sh
# Prints the primary's name by the newest of the sentinels' answers; waits until two of three have answered. One alone may
# come back from a time in which the others have chosen another primary.
set -eu
while true; do
    answers=0 newest=-1 primary=
    for number in 0 1 2; do
        answer=$(timeout 3 redis-cli -h "store-$number.store" -p 26379 sentinel master votes 2>/dev/null) || continue
        name=$(echo "$answer" | sed -n '/^ip$/{n;p;}')
        epoch=$(echo "$answer" | sed -n '/^config-epoch$/{n;p;}')
        [ -n "$name" ] && [ -n "$epoch" ] || continue
        answers=$((answers + 1))
        if [ "$epoch" -gt "$newest" ]; then
            newest=$epoch primary=$name
        fi
    done
    if [ "$answers" -ge 2 ]; then
        echo "$primary"
        exit 0
    fi
    echo "waiting for two sentinels, $answers answered" >&2
    sleep 1
done
