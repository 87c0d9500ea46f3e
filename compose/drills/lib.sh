# Functions of the drills. The stack must be up; a drill restores what it has stopped.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

x_s=${x_s:-2} # the bound of compose/deployment.yaml
allowed_s=1   # tolerance for a busy machine

stack() { docker compose --progress quiet -f compose/compose.yaml ${DRILL_ENV:+--env-file "$DRILL_ENV"} "$@"; }
container() { stack ps -aq "$1"; }
say() { echo "$(date -u +%T) $*"; }

claim() {
  echo "Claim: $*"
  local service
  for service in kafka-1 controller node; do
    [[ -n $(stack ps -q "$service") ]] || {
      echo "the stack is not up: docker compose -f compose/compose.yaml up -d --wait" >&2
      exit 3
    }
  done
}

# judge OPTION...: compares all exact answers with the source logs, in a container.
judge() { stack exec -T node python - "$@" <compose/drills/judge.py; }

# watch SECONDS OPTION...: starts a judge in the background that follows the answers which are due in
# the next SECONDS; `wait $watching` returns its verdict.
watch() {
  judge --until-in "$1" --since-in 8 --late-max $((x_s + allowed_s)) "${@:2}" &
  watching=$!
  wait_answers 10
}

# load SECONDS: writes readings to lab-readings, in the background; `wait` waits for its end.
load() { stack exec -T node python - "$1" <compose/drills/load.py & }

# signal SIGNAL PROCESS: sends it to a process of the node, as `slackwater status -v` names processes.
signal() { stack exec -T node pkill "-$1" -f "slackwater.${2%/*} ${2#*/} "; }

# wait_answers SECONDS: waits until the stack answers, at most so long.
wait_answers() { judge --until-in "$1" --quiet; }

# wait_healthy SERVICE: waits until it serves again; a broker that returns recovers its logs first.
wait_healthy() {
  local deadline=$((SECONDS + 120))
  until [[ $(docker inspect -f '{{.State.Health.Status}}' "$(container "$1")") == healthy ]]; do
    ((SECONDS < deadline)) || { echo "$1 is not healthy after 120 s" >&2 && exit 1; }
    sleep 1
  done
}
