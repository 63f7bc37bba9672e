#!/bin/bash
# Is everything right on this device? Under ten minutes: device and versions, kernels (pages first, since all others
# need them), each failure again in a process of its own, whole models, a quick run. Arguments: see stages.sh.
. "$(dirname "$0")/stages.sh"
begin 570 "$@"

pytest=("$python" -m pytest -W default -q -o "cache_dir=$scratch")
kernels=tests/engine/kernels/gpu models=tests/engine/runner/device/test_device_on_triton.py
pages=("$kernels/test_pages.py") all=("$kernels") whole=("$models") processes=8
if [ "$device" = cpu ]; then # one test of each sort
  pages+=(-k copied) all=("$kernels/test_activation.py") processes=1
  whole=(tests/engine/runner/device/test_device_runner.py -k "plenty")
fi

stage device 30 "$python" -m benchmarks.gpu.machine "$device" "$folder/machine.json" || finish
stage pages 60 "${pytest[@]}" -x "${pages[@]}"
stage kernels 220 "${pytest[@]}" -n "$processes" "${all[@]}"
status=$?
# A failed assertion of the device spoils its process, and with it the tests that follow there: only what fails alone
# too is wrong. But where pytest did not run to its end (a status other than 1), some tests have not run at all.
again=("$python" -m benchmarks.gpu.first_hour.again "$scratch" "$folder/again.json" "$processes" 60)
if [ "$status" != 0 ] && stage again 70 "${again[@]}" && [ "$status" = 1 ]; then
  failed=${failed/ kernels/}
fi
stage models 110 "${pytest[@]}" -n $((processes / 2)) "${whole[@]}"
run=("$python" -m benchmarks.gpu --device "$device" --quick --no-peers)
stage quick 100 "${run[@]}" --budget-s 70 --json "$folder/quick.json" ||
  stage quick-eager 60 "${run[@]}" --enforce-eager --operators torch --budget-s 40 --json "$folder/quick-eager.json"
finish
