#!/usr/bin/env bash
# With compose/cluster.env: one of three brokers and one of two Spark workers are killed under load
# of 1,000 readings/s, and started again. About two minutes.
DRILL_ENV=compose/cluster.env
source "$(dirname "$0")/lib.sh"
claim "One of three brokers and one Spark worker die under load: nothing is lost or doubled, and no" \
  "answer comes later than X + $allowed_s s."

load 90
loading=$!
watch 100
say "kafka-2 is killed"
docker kill "$(container kafka-2)" >/dev/null
trap 'docker start "$(container kafka-2)" "$(container spark-worker-1)" >/dev/null' EXIT
sleep 15
docker start "$(container kafka-2)" >/dev/null
say "kafka-2 is started again"
sleep 15
say "spark-worker-1 is killed"
docker kill "$(container spark-worker-1)" >/dev/null
sleep 15
docker start "$(container spark-worker-1)" >/dev/null
say "spark-worker-1 is started again"
wait "$loading"
wait "$watching"
