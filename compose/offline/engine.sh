#!/usr/bin/env bash
# A Docker engine on this machine: installs Debian's if there is none, and starts it unless one
# answers. Run as root; any number of times.
#
#   engine.sh [start|stop]       SLACKWATER_ENGINE_LOG: where a daemon that we start writes
set -euo pipefail

log=${SLACKWATER_ENGINE_LOG:-/var/log/slackwater-dockerd.log}
pid_files=(/var/run/docker.pid /var/run/docker/containerd/containerd.pid)
answers_s_max=60

engine_answers() { docker info --format '{{.ServerVersion}}' >/dev/null 2>&1; }

# alive FILE: does the process that the pid file names still run a program? A number that was given
# to somebody else, or to a zombie (which has no command line), is not it.
alive() {
  local pid program
  pid=$(cat "$1" 2>/dev/null) || return 1
  program=$(basename "$1" .pid)
  [[ $program == docker ]] && program=dockerd
  tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | head -n 1 | grep -q "$program"
}

install_engine() {
  if command -v dockerd iptables >/dev/null; then return; fi
  echo "engine: installing Debian's docker.io"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends docker.io iptables >/dev/null
}

# A daemon that was killed leaves its pid files. The next one believes them as long as anything at
# all has that number, and gives up.
forget_the_dead() {
  local file
  for file in "${pid_files[@]}"; do
    alive "$file" || rm -f "$file"
  done
}

start() {
  if engine_answers; then return; fi
  if ((EUID != 0)); then
    echo "engine: no Docker answers, and only root can start one: sudo $0" >&2
    exit 3
  fi
  # Two callers at once (CI and a developer) must not start two daemons.
  exec 9>/run/lock/slackwater-engine
  flock 9
  if engine_answers; then return; fi
  install_engine
  forget_the_dead
  if ! alive "${pid_files[0]}"; then
    setsid --fork dockerd </dev/null >>"$log" 2>&1 9>&-
  fi
  local deadline=$((SECONDS + answers_s_max))
  until engine_answers; do
    if ((SECONDS >= deadline)); then
      echo "engine: no answer within $answers_s_max s; $log ends with:" >&2
      tail -n 15 "$log" >&2
      exit 3
    fi
    sleep 0.2 # dockerd tells nobody when it is ready
  done
  echo "engine: $(docker info --format '{{.ServerVersion}}') answers"
}

stop() {
  alive "${pid_files[0]}" || return 0
  local pid
  pid=$(cat "${pid_files[0]}")
  kill "$pid"
  tail --pid="$pid" -f /dev/null # waits for a process that is not ours
}

case ${1:-start} in
  start | stop) "${1:-start}" ;;
  *) echo "usage: $0 [start|stop]" >&2 && exit 2 ;;
esac
