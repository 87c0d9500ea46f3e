#!/usr/bin/env bash
# One of two orderers is killed with SIGKILL, and started again after 8 s. About half a minute.
source "$(dirname "$0")/lib.sh"
claim "While one replica is dead the other one answers: nothing is lost or doubled, and no answer" \
  "comes later than X."

wait_answers 3
since=$(now_us)
say "orderer-a is killed"
docker kill "$(container orderer-a)" >/dev/null
trap 'docker start "$(container orderer-a)" >/dev/null' EXIT
sleep 8
docker start "$(container orderer-a)" >/dev/null
say "orderer-a is started again"
judge --until-in 10 --since "$since" --late-max $((x_s + allowed_s))
