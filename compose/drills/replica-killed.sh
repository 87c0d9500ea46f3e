#!/usr/bin/env bash
# The host of one of two orderers stops for 8 s, then it is killed with SIGKILL. A minute.
source "$(dirname "$0")/lib.sh"
claim "While one replica is dead the other one answers: nothing is lost or doubled, and no answer" \
  "comes later than X."

watch 60
say "host/1 stops"
signal STOP host/1
trap 'signal CONT host/1 || true' EXIT
sleep 8
signal KILL host/1
say "host/1 is killed, and the node starts it again"
wait "$watching"
