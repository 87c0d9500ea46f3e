#!/usr/bin/env bash
# Pull an image if its registry answers; says by its exit code whether the image is there now.
#
#   pull.sh IMAGE
set -euo pipefail

answer_s_max=20 # a site's firewall may swallow the question
timeout "$answer_s_max" docker manifest inspect "$1" >/dev/null 2>&1 && docker pull --quiet "$1"
