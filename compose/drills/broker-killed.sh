#!/usr/bin/env bash
# With compose/cluster.env: one of three brokers and one of two Spark workers are killed under load
# of 1,000 readings/s, and started again. About two minutes.
DRILL_ENV=compose/cluster.env
x_s=5 # the bound of compose/cluster-deployment.yaml
source "$(dirname "$0")/lib.sh"
claim "One of three brokers and one Spark worker die under load: nothing is lost or doubled, and no" \
  "answer comes later than X + $allowed_s s."

# The one that coordinates the root's transactions, since no answer is committed without it.
broker=kafka-$(stack exec -T node python - <compose/drills/coordinator.py)
load 90
loading=$!
watch 100
say "$broker is killed"
docker kill "$(container "$broker")" >/dev/null
trap 'docker start "$(container "$broker")" "$(container spark-worker-1)" >/dev/null' EXIT
sleep 15
docker start "$(container "$broker")" >/dev/null
say "$broker is started again"
sleep 15
say "spark-worker-1 is killed"
docker kill "$(container spark-worker-1)" >/dev/null
sleep 15
docker start "$(container spark-worker-1)" >/dev/null
say "spark-worker-1 is started again"
wait "$loading"
wait "$watching"
