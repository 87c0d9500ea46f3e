#!/usr/bin/env bash
# Everything that `docker compose up` needs and this machine lacks, without an image registry: the
# engine, the Compose plugin, stand-ins for the two public images. Costs a second if nothing is
# missing. Where a registry can be reached, none of this is needed.
#
#   prepare.sh [PYTHON]        a Python with pip; default: that of `make setup`, else python3
set -euo pipefail
cd "$(dirname "$0")"
python=../../.venv/bin/python
[[ -x $python ]] || python=python3

./engine.sh
./plugin.sh "${1:-$python}"
./base.sh
./kafka/build.sh
