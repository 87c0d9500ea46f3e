#!/usr/bin/env bash
# A public Debian base image; where it cannot be pulled, a stand-in made of Debian packages, for
# machines that reach a package mirror but no image registry. One that is there is left alone.
#
#   base.sh [IMAGE]              default debian:bookworm-slim; run as root
set -euo pipefail

image=${1:-debian:bookworm-slim}
suite=${image#*:}
suite=${suite%%-*}
if docker image inspect "$image" >/dev/null 2>&1; then exit; fi
if "$(dirname "$0")/pull.sh" "$image"; then exit; fi
echo "base: building a stand-in for $image"

if ! command -v debootstrap >/dev/null; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends debootstrap >/dev/null
fi

tree=$(mktemp -d)
trap 'rm -rf "$tree" "$tree.log"' EXIT
if ! debootstrap --variant=minbase --include=ca-certificates "$suite" "$tree" >"$tree.log" 2>&1; then
  tail -n 20 "$tree.log" >&2
  exit 3
fi

# Where this machine gets its packages, and whom it trusts, holds inside too: a site with a mirror
# or with certificates of its own needs no line in any Dockerfile. So never push this image.
sources=/etc/apt/sources.list.d/debian.sources
if grep -qsw "$suite" "$sources"; then
  rm -f "$tree/etc/apt/sources.list"
  cp "$sources" "$tree$sources"
fi
if [[ -d /usr/local/share/ca-certificates ]]; then
  cp -rL /usr/local/share/ca-certificates/. "$tree/usr/local/share/ca-certificates/"
fi
chroot "$tree" update-ca-certificates >/dev/null 2>&1

# What makes Debian's slim images slim, for this image and for every layer on top of it.
cat >"$tree/etc/dpkg/dpkg.cfg.d/slim" <<'END'
path-exclude=/usr/share/man/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/locale/*
path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
force-unsafe-io
END
cat >"$tree/etc/apt/apt.conf.d/slim" <<'END'
APT::Install-Recommends "false";
Acquire::Languages "none";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb"; };
END
find "$tree"/usr/share/{man,info,locale} -type f -delete
find "$tree/usr/share/doc" -type f ! -name copyright -delete
rm -rf "$tree"/var/lib/apt/lists/* "$tree"/var/cache/apt/*.bin "$tree"/var/cache/apt/archives/*.deb

chmod 755 "$tree" # mktemp makes a folder that only root may enter
tar --numeric-owner -C "$tree" -c . |
  docker import --change 'CMD ["bash"]' --change 'LABEL slackwater.stand-in=true' - "$image" \
    >/dev/null
