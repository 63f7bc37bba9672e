# Sourced by the three scripts of the first hour on a GPU: arguments, environment, and stages that end in time.
#
#     SCRIPT [FOLDER] [--device cpu --quick] [--only STAGE,...]
#
# FOLDER (without it: $OUT) gets all that the stages measure while they measure it; SCRIPT.jsonl has a line for each
# stage, SCRIPT.log all that was printed. With --device cpu --quick everything is tiny and kernels run in Triton's
# interpreter, which only checks that the scripts work. --only repeats some stages.

set -u -o pipefail

begin() { # begin SECONDS "$@": the whole script ends after so many seconds
  end=$((SECONDS + $1)); shift
  script=$(basename "$0" .sh) folder=${OUT:-} device=cuda quick="" only="" failed=""
  while [ $# -gt 0 ]; do
    case $1 in
      --device) device=${2:?cuda or cpu}; shift ;;
      --only) only=,${2:?names of stages},; shift ;;
      --quick) quick=--quick ;;
      -*) echo "$script: there is no option $1" >&2; exit 2 ;;
      *) folder=$1 ;;
    esac
    shift
  done
  if [ -z "$folder" ] || { [ "$device" = cpu ] && [ -z "$quick" ]; }; then
    echo "usage: $0 FOLDER [--device cpu --quick] [--only STAGE,...]" >&2; exit 2
  fi
  mkdir -p "$folder" && folder=$(cd "$folder" && pwd) || exit 2
  cd "$(dirname "${BASH_SOURCE[0]}")/../../.." || exit 2
  python=${PYTHON:-python3}
  scratch=$(mktemp -d) && trap 'rm -rf "$scratch"' EXIT
  # Without it tests choose the interpreter by themselves where they see no device file.
  export TRITON_INTERPRET=$([ "$device" = cpu ] && echo 1 || echo 0)
  export PYTHONUNBUFFERED=1 TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-${TMPDIR:-/tmp}/agon-triton-cache}
}

# stage NAME SECONDS COMMAND...: at most so long and not beyond the end of the script. Returns the command's status.
stage() {
  local name=$1 limit=$(($2 < end - SECONDS ? $2 : end - SECONDS)) began=$SECONDS status
  shift 2
  [ -z "$only" ] || [[ $only == *,$name,* ]] || return 0
  echo "== $name, at most $limit s: $*" | tee -a "$folder/$script.log"
  if [ "$limit" -gt 0 ]; then
    # An interrupt lets pytest write down what has failed so far.
    timeout --signal=INT --kill-after=10 "$limit" "$@" 2>&1 | tee -a "$folder/$script.log"
    status=${PIPESTATUS[0]}
  else
    status=124
  fi
  printf '{"stage": "%s", "status": %d, "seconds": %d}\n' "$name" "$status" $((SECONDS - began)) \
    >>"$folder/$script.jsonl"
  [ "$status" = 0 ] || failed="$failed $name"
  return "$status"
}

finish() { # writes the report; the verdict is the exit status of the script
  stage report 20 "$python" -m benchmarks.gpu report "$folder" --out "$folder/report.md"
  if [ -n "$failed" ]; then
    echo "== $script FAILED:$failed; results in $folder" | tee -a "$folder/$script.log"
    exit 1
  fi
  echo "== $script passed; results in $folder" | tee -a "$folder/$script.log"
  exit 0
}
