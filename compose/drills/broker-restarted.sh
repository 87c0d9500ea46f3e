#!/usr/bin/env bash
# The only broker is restarted. About a minute. No bound holds while it is away.
source "$(dirname "$0")/lib.sh"
claim "A restart of the broker loses and doubles nothing; all processes go on by themselves."

wait_answers 3
say "the broker is restarted"
docker restart "$(container kafka-1)" >/dev/null
wait_healthy kafka-1
say "the broker serves again"
judge --until-in 10
