#!/usr/bin/env bash
# All of Kafka's commands are this file under other names.
set -euo pipefail

case $(basename "$0" .sh) in
  kafka-topics) class=org.apache.kafka.tools.TopicCommand ;;
  kafka-configs) class=kafka.admin.ConfigCommand ;;
  kafka-consumer-groups) class=org.apache.kafka.tools.consumer.group.ConsumerGroupCommand ;;
  kafka-get-offsets) class=org.apache.kafka.tools.GetOffsetShell ;;
  kafka-console-producer) class=org.apache.kafka.tools.ConsoleProducer ;;
  kafka-console-consumer) class=org.apache.kafka.tools.consumer.ConsoleConsumer ;;
  kafka-broker-api-versions) class=org.apache.kafka.tools.BrokerApiVersionsCommand ;;
  kafka-storage) class=kafka.tools.StorageTool ;;
  *) echo "$0: call it by the name of a command" >&2 && exit 2 ;;
esac
read -ra heap <<<"${KAFKA_HEAP_OPTS:--Xmx256m}"
# What a command answers goes to its output; what it logs must not stand in between.
export SLACKWATER_KAFKA_LOG_LEVEL=WARN SLACKWATER_KAFKA_LOG_TO=SYSTEM_ERR
exec java "${heap[@]}" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
  -Dlog4j2.configurationFile=/opt/kafka/config/log4j2.properties \
  -cp '/opt/kafka/libs/*' "$class" "$@"
