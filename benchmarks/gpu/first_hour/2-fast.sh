#!/bin/bash
# How fast is it? Under ten minutes: each kernel alone; then whole models, the kernels of their steps one by one, and
# transformers in the same run. Arguments: see stages.sh.
. "$(dirname "$0")/stages.sh"
begin 575 "$@"

where=(--device "$device") kernels=(--budget-s 150) models=(--no-kernels --profile --budget-s 350)
[ -z "$quick" ] || where+=("$quick")
if [ "$device" = cpu ]; then
  kernels+=(--kernel norm) models+=(--no-peers)
fi
stage kernels 170 "$python" -m benchmarks.kernels "${where[@]}" "${kernels[@]}" --json "$folder/kernels.json"
stage models 390 "$python" -m benchmarks.gpu "${where[@]}" "${models[@]}" --json "$folder/gpu.json"
finish
