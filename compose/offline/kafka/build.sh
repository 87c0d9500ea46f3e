#!/usr/bin/env bash
# The image apache/kafka; where it cannot be pulled, a stand-in made of Maven's jars. One that was
# pulled is left alone; a stand-in is built anew where these files have changed.
#
#   build.sh [VERSION]           default 4.3.1; BASE: the image to build on
set -euo pipefail
cd "$(dirname "$0")"

version=${1:-4.3.1}
image=apache/kafka:$version
label='{{index .Config.Labels "slackwater.stand-in"}}'
if found=$(docker image inspect --format "$label" "$image" 2>/dev/null); then
  if [[ $found != true ]]; then exit; fi
elif ../pull.sh "$image"; then
  exit
fi

if [[ ! -f libs/kafka_2.13-$version.jar ]]; then
  command -v "${MVN:-mvn}" >/dev/null || {
    echo "kafka: no Maven; on Debian: apt-get install maven" >&2
    exit 3
  }
  echo "kafka: fetching the jars of Kafka $version"
  rm -rf libs libs.part
  "${MVN:-mvn}" --quiet --batch-mode -Dkafka.version="$version" dependency:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$PWD/libs.part"
  mv libs.part libs
fi

# Through Compose, whose builder the other images use too: they share layers.
docker compose --progress quiet --project-directory . -f - build <<END
name: slackwater-offline
services:
  kafka:
    image: $image
    build: {context: ., args: {BASE: "${BASE:-debian:bookworm-slim}"}}
END
