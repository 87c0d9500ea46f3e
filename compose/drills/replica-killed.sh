#!/usr/bin/env bash
# One of two orderers is killed with SIGKILL, and started again after 8 s. About a minute.
source "$(dirname "$0")/lib.sh"
claim "While one replica is dead the other one answers: nothing is lost or doubled, and no answer" \
  "comes later than X."

watch 60
say "orderer-a is killed"
docker kill "$(container orderer-a)" >/dev/null
trap 'docker start "$(container orderer-a)" >/dev/null' EXIT
sleep 8
docker start "$(container orderer-a)" >/dev/null
say "orderer-a is started again"
wait "$watching"
