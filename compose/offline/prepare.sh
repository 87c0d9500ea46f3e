#!/usr/bin/env bash
# Everything that `docker compose up` needs and this machine lacks, without an image registry: the
# engine, the Compose plugin, stand-ins for the two public images. Costs a second if nothing is
# missing. Where a registry can be reached, none of this is needed.
#
#   prepare.sh [PYTHON]
set -euo pipefail
cd "$(dirname "$0")"

./engine.sh
./plugin.sh "${1:-python3}"
./base.sh
./kafka/build.sh
