#!/usr/bin/env bash
# The host of one of two orderers is killed with SIGKILL, and started again after 8 s. A minute.
source "$(dirname "$0")/lib.sh"
claim "While one replica is dead the other one answers: nothing is lost or doubled, and no answer" \
  "comes later than X."

watch 60
say "host-1 is killed"
docker kill "$(container host-1)" >/dev/null
trap 'docker start "$(container host-1)" >/dev/null' EXIT
sleep 8
docker start "$(container host-1)" >/dev/null
say "host-1 is started again"
wait "$watching"
