#!/bin/bash
# Everything that a new GPU should be asked, the most valuable questions first, in nine minutes or in as many as there are.
#
#     first_minutes.sh OUT [SECONDS] [--device cpu] [--only STAGE,...]
#
# Each stage is a process with a limit, and writes what it finds while it runs. The limits below are those of 535 seconds,
# the default; with more they are longer, and from half an hour on all tests, models and kernels are measured. OUT gets
# seven files at most: lines.jsonl (stages, facts, probes, smoke test), log.txt, tests.xml, gpu.json, kernels.json,
# sm_NN.json and report.md. --only repeats some stages in OUT. --device cpu: everything is tiny, only to see that it works.
#
# Exit status: 0 all is well, 1 some stage failed, 2 wrong arguments, 3 nothing works (after two and a half minutes).

set -u -o pipefail
usage() { sed -n '4s/^#  *//p' "${BASH_SOURCE[0]}" >&2; exit 2; }

out="" seconds=535 device=cuda only="" failed=""
while [ $# -gt 0 ]; do
  case $1 in
    --device) device=${2:-}; shift ;;
    --only) only=,${2:-},; shift ;;
    -*) usage ;;
    *) if [ -z "$out" ]; then out=$1; else seconds=$1; fi ;;
  esac
  shift || usage
done
[ -n "$out" ] && [[ $seconds =~ ^[0-9]+$ && $device =~ ^(cuda|cpu)$ ]] || usage
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
[ -n "$only" ] || rm -f "$out"/{lines.jsonl,log.txt,tests.xml,gpu.json,kernels.json,report.md}
lines=$out/lines.jsonl log=$out/log.txt end=$((SECONDS + seconds)) began_at=$SECONDS python=${PYTHON:-python3}
scratch=$(mktemp -d) && trap 'rm -rf "$scratch"' EXIT
# Tests choose the interpreter by themselves where they see no device file, unless this says which.
export TRITON_INTERPRET=0 PYTHONUNBUFFERED=1
[ "$device" = cuda ] || TRITON_INTERPRET=1
export TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-$PWD/.gpu/triton}
touch "$lines" "$log"

say() { echo "$*" | tee -a "$log"; }
# Of `make gpu-cache`, where it has been made: kernels that are compiled already, and packages that may be missing here.
if [ -f .gpu/triton.tar.xz ]; then
  "$python" -m benchmarks.gpu.compiled_cache unpack .gpu/triton.tar.xz "$TRITON_CACHE_DIR" 2>&1 | tee -a "$log"
else
  say "there is no cache of compiled kernels: everything is compiled here"
fi
for wheel in .gpu/*.whl; do
  [ ! -f "$wheel" ] || "$python" -m zipfile -e "$wheel" "$scratch/packages"
done
export PYTHONPATH=$scratch/packages${PYTHONPATH:+:$PYTHONPATH}
scaled() { echo $(($1 * seconds / 535)); }
within() { # the seconds that a stage of that limit has
  local limit left=$((end - SECONDS)); limit=$(scaled "$1")
  echo $((limit < left ? limit : left))
}

selected() { [ -z "$only" ] || [[ $only == *,$1,* ]]; }

# stage NAME LIMIT COMMAND...: returns the command's status; 124: it was stopped.
stage() {
  local name=$1 limit began=$SECONDS status=124; limit=$(within "$2"); shift 2
  selected "$name" || return 0
  say "== $name, at most $limit s: $*"
  if [ "$limit" -gt 0 ]; then
    # An interrupt lets pytest write down what has failed so far.
    timeout --signal=INT --kill-after=5 "$limit" "$@" 2>&1 | tee -a "$log" |
      grep --line-buffered -E '^\{"(facts|probe|smoke)"' | tee -a "$lines"
    status=${PIPESTATUS[0]}
  fi
  printf '{"stage": "%s", "status": %d, "at": %d, "seconds": %d}\n' \
    "$name" "$status" $((began - began_at)) $((SECONDS - began)) | tee -a "$lines"
  [ "$status" = 0 ] || [[ "$failed " == *" $name "* ]] || failed="$failed $name"
  return "$status"
}

finish() { # finish STATUS
  rm -f "$out"/*.partial # of what was stopped while it was written
  "$python" -m benchmarks.gpu report "$out" --out "$out/report.md" >>"$log" 2>&1 || failed="$failed report"
  if [ -n "$failed" ]; then say "== FAILED:$failed; results in $out"; else say "== passed; results in $out"; fi
  exit "$1"
}

# The disk may be slow when a machine is new: what most stages import is read meanwhile.
[ "$device" = cpu ] || "$python" -c "import torch, transformers" >/dev/null 2>&1 &
stage facts 90 "$python" -m benchmarks.gpu facts --device "$device" # where there is no device, all others say so, too

if selected probes; then
  sed -i '/^{"probe"/d' "$lines" # of an earlier run
  for _ in 1 2 3 4; do # one that loses the context ends its process: the others in another one
    stage probes 60 "$python" -m benchmarks.gpu.probe --device "$device" --rest "$lines"
    [ $? -gt 1 ] || break
  done
fi
num_asked=$(grep -c '^{"probe": "dependent .*"has_begun"' "$lines")
num_right=$(grep '^{"probe": "dependent ' "$lines" | grep -c '"is_right": true')
if [ "$num_asked" -gt "$num_right" ]; then
  say "== dependent launches are wrong on this device: none from here on"
  export AGON_DEPENDENT_LAUNCH=0
fi

selected smoke && sed -i '/^{"smoke"/d' "$lines"
stage smoke 75 "$python" -m benchmarks.gpu.smoke --device "$device" --budget-s $(($(within 75) - 5))
way=$(sed -n 's/^{"smoke": "verdict", "way": "*\([a-z]*\).*/\1/p' "$lines" | tail -n 1)
if selected smoke && [[ ! $way =~ ^(graphs|eager|torch)$ ]]; then
  # The rest of the minutes is worth more with a mended engine than spent on what cannot work.
  limit=$((150 - (SECONDS - began_at) * 535 / seconds)) only=""
  if command -v compute-sanitizer >/dev/null; then
    stage sanitizer $((limit > 20 ? limit : 20)) compute-sanitizer --tool memcheck --target-processes all \
      "$python" -m benchmarks.gpu.smoke --device "$device" --one-layer --eager
  fi
  finish 3
fi
engine=()
case $way in
  eager) engine=(--enforce-eager) ;;
  torch) engine=(--enforce-eager --operators torch) ;;
esac

is_long=$((seconds >= 1800)) cores=$(nproc)
kernels=tests/engine/kernels/gpu models=tests/engine/runner/device
if [ "$device" = cpu ]; then
  tests=(-m first_minutes "$kernels/test_activation.py")
elif [ $is_long = 1 ]; then
  tests=("$kernels" "$models/test_device_on_triton.py" "$models/test_quantised_on_triton.py")
else
  tests=(-m first_minutes --timeout 60 "$kernels" "$models/test_device_on_triton.py")
fi
[ "$device" = cpu ] || tests+=(-n $((cores < 12 ? cores : 12)) -p tests.lost_context)
stage tests 120 "$python" -m pytest -W default -q -p no:cacheprovider --junitxml "$out/tests.xml" "${tests[@]}"

measured() { # measured STAGE LIMIT NAME: a model or its peers
  local size=()
  [ $is_long = 1 ] || size=(--quick)
  stage "$1" "$2" "$python" -m benchmarks.gpu --device "$device" "${size[@]}" --json "$out/gpu.json" --append \
    --only "$3" --profile --budget-s $(($(within "$2") - 15)) "${engine[@]}"
}
if [ "$device" = cpu ]; then
  measured qwen 60 tiny
else
  measured qwen 60 qwen3-0.6b
  measured llama8b 75 llama-3.1-8b
  [ $is_long = 0 ] || measured llama1b 45 llama-3.2-1b
fi
measured transformers 75 transformers

case $device$is_long in
  cpu*) where=(--device cpu --quick) kernels="norm" ;;
  cuda0) where=() kernels="attention,product,sampling" ;;
  cuda1) where=() kernels="" ;;
esac
stage kernels 70 "$python" -m benchmarks.kernels "${where[@]}" --kernel "$kernels" \
  --budget-s $(($(within 70) - 10)) --json "$out/kernels.json"
stage tune 535 "$python" -m benchmarks.kernels tune "${where[@]}" \
  --budget-s $(($(within 535) - 15)) --tables "$out"
finish $((${#failed} > 0))
