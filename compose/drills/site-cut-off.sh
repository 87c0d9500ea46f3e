#!/usr/bin/env bash
# A site loses its connection for 10 s, five times X. About a minute.
source "$(dirname "$0")/lib.sh"
claim "A site that is cut off for longer than X delays nobody: answers come within X + $allowed_s s, say" \
  "that the site is missing, and are replaced by exact ones when it is back."

watch 60 --missing room-2
network=$(docker inspect -f '{{range $name, $_ := .NetworkSettings.Networks}}{{$name}}{{end}}' "$(container room-2)")
say "room-2 is cut off"
docker network disconnect "$network" "$(container room-2)"
trap 'docker network connect "$network" "$(container room-2)" 2>/dev/null || true' EXIT
sleep 10
docker network connect "$network" "$(container room-2)"
say "room-2 is connected again"
wait "$watching"
