#!/bin/bash
# Which tile sizes are best here? Under nine minutes: a table (in engine/kernels/tuned, and a copy in FOLDER), attention
# with it, a quick run with it. Arguments: see stages.sh.
. "$(dirname "$0")/stages.sh"
begin 540 "$@"

where=(--device "$device") tables=(--budget-s 300)
[ -z "$quick" ] || where+=("$quick")
[ -z "$quick" ] || tables=(--tables "$folder" --budget-s 4)
kernels=(--kernel attention --budget-s 45 --json "$folder/kernels-tuned.json")
models=(--quick --no-peers --budget-s 70 --json "$folder/quick-tuned.json")
stage tune 320 "$python" -m benchmarks.kernels tune "${where[@]}" "${tables[@]}"
find engine/kernels/tuned -name 'sm_*.json' -newer "$scratch" -exec cp {} "$folder" \;
stage kernels 60 "$python" -m benchmarks.kernels "${where[@]}" "${kernels[@]}"
stage quick 100 "$python" -m benchmarks.gpu --device "$device" "${models[@]}"
finish
