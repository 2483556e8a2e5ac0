#!/usr/bin/env bash
# setup.sh gets what the tests need, before anything is compiled.
#
#	integration/setup.sh test        what make test needs
#	integration/setup.sh prove       what make prove needs, which includes make test
#	integration/setup.sh rocketmq    single parts; see need below
#
# A broker that an environment variable names (REDELIVER_TEST_KAFKA and so on) is used and needs nothing. A docker daemon
# that answers starts the brokers from integration/compose. Otherwise the brokers run from Debian's packages and from
# jars that Maven fetches into the user's cache directory: as root on Debian or Ubuntu this script installs the packages,
# unless REDELIVER_NO_INSTALL=1. Where it cannot, it lists what is missing and the command that installs it.
set -euo pipefail
cd "$(dirname "$0")"
PATH=$PATH:/usr/sbin:/sbin
exec </dev/null

case $(uname) in
Darwin) cache=$HOME/Library/Caches/redeliver ;;
*) cache=${XDG_CACHE_HOME:-$HOME/.cache}/redeliver ;;
esac
packages=() # missing packages of Debian
reasons=()  # what each is for
fetches=()  # what is fetched into the cache directory

# want PACKAGE REASON COMMAND...: the package is missing if the command fails.
want() {
  local package=$1 reason=$2
  shift 2
  if ! "$@" >/dev/null 2>&1 && [[ " ${packages[*]-} " != *" $package "* ]]; then
    packages+=("$package")
    reasons+=("$package: $reason")
  fi
}

# A directory of the cache is complete when its marker holds the hash of the recipe. integration/brokers reads the same marker.
is_complete() { [[ -f $cache/$1/complete && $(<"$cache/$1/complete") == "$2" ]]; }
hash_of() { sha256sum | cut -d' ' -f1; }
want_fetched() { is_complete "$1" "$2" || fetches+=("$1 $2 ${*:3}"); }

want_jars() { # NAME POM [VERSION]
  want openjdk-17-jre-headless "$1 runs on Java 17" command -v java
  want maven "fetches the jars of $1" command -v mvn
  want_fetched "$1" "$(pom_of "${@:2}" | hash_of)" fetch_jars "${@:2}"
}
# The pom of Kafka, for another version if one is given.
pom_of() { sed "${2:+s/4\.3\.0/$2/}" "$1"; }

installed_rabbitmq() { ls -d /usr/lib/rabbitmq/lib/rabbitmq_server-"$1".* >/dev/null 2>&1; }
# The major version that this system's own package has.
packaged_rabbitmq() {
  case $(. /etc/os-release 2>/dev/null && echo "${VERSION_CODENAME-}") in
  bookworm | noble) echo 3 ;;
  trixie | forky) echo 4 ;;
  esac
}

want_rabbitmq() { # VERSION SUITE
  installed_rabbitmq "$1" && return
  if [[ $(packaged_rabbitmq) == "$1" ]]; then
    want rabbitmq-server "the broker" false
    return
  fi
  # Another Debian has the version.
  want debootstrap "makes the Debian $2 that has RabbitMQ $1" command -v debootstrap
  want_fetched "rabbitmq-server-$2" "$(echo "1 $2 rabbitmq-server" | hash_of)" fetch_debian "$2"
}

docker=
answers_docker() {
  [[ ${REDELIVER_TEST_WAY-} == native ]] && return 1
  local limit=(timeout 3)
  command -v timeout >/dev/null || limit=() # macOS has none
  [[ $docker ]] || docker=$(${limit[@]+"${limit[@]}"} docker info --format yes 2>/dev/null || echo no)
  [[ $docker == yes ]]
}
# natively VARIABLE: neither the user nor docker runs the broker.
natively() { [[ -z ${!1-} ]] && ! answers_docker; }

need() {
  case $1 in
  test) for part in gcc kafka rabbitmq sqs redis chromium python; do need $part; done ;;
  prove) for part in test kafkas rabbitmq4 rabbitmq4.3 moto pika promtool postgresql javac; do need $part; done ;;
  gcc)
    want gcc "the race detector" command -v gcc
    want libc6-dev "the race detector" test -e /usr/include/stdlib.h
    ;;
  kafka) ! natively REDELIVER_TEST_KAFKA || want_jars kafka brokers/kafka/pom.xml ;;
  kafkas) for version in 3.0.2 3.9.1 4.0.0 4.1.0; do want_jars "kafka-$version" brokers/kafka/pom.xml $version; done ;;
  sqs) ! natively REDELIVER_TEST_SQS || want_jars elasticmq brokers/elasticmq/pom.xml ;;
  rocketmq) [[ ${REDELIVER_TEST_ROCKETMQ-} ]] || want_jars rocketmq brokers/rocketmq/pom.xml ;;
  rabbitmq) ! natively REDELIVER_TEST_RABBITMQ || want_rabbitmq 3 bookworm ;;
  rabbitmq4) ! natively REDELIVER_TEST_RABBITMQ4 || want_rabbitmq 4 trixie ;;
  rabbitmq4.3) answers_docker || want_rabbitmq 4.3 forky ;;
  redis) ! natively REDELIVER_TEST_REDIS || want redis-server "the broker" command -v redis-server ;;
  chromium) want chromium "the tests of the console" command -v chromium ;;
  python) want python3 "the sidecar's example" command -v python3 ;;
  moto)
    want python3-venv "moto and boto3" python_with "import venv, ensurepip"
    want_fetched python "$(hash_of <brokers/python/requirements.txt)" fetch_python
    ;;
  pika) want python3-pika "an independent client of RabbitMQ" python_with "import pika" ;;
  promtool) want prometheus "checks the alerts" command -v promtool ;;
  postgresql) want postgresql "a database for the inbox" compgen -G "/usr/lib/postgresql/*/bin/postgres" ;;
  javac)
    want openjdk-17-jdk-headless "compiles the service of Spring Kafka" command -v javac
    want maven "fetches Spring Kafka" command -v mvn
    ;;
  *)
    echo "integration/setup.sh: there is no part $1" >&2
    exit 2
    ;;
  esac
}

# Debian's modules are for Debian's Python, which may not be the first one.
python_with() { python3 -c "$1" || /usr/bin/python3 -c "$1"; }

fetch_jars() { # DIR POM [VERSION]
  pom_of "${@:2}" >"$1/pom.xml"
  # Without -U Maven does not try again to get a jar that it once failed to get.
  mvn -q -B -U -f "$1/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory="$1/lib" >"$1/log" 2>&1 ||
    { tail -30 "$1/log" >&2; return 1; }
}

fetch_debian() { # DIR SUITE
  local mirror
  mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)/$(COMPONENT)' 'Identifier: Packages' |
    awk '$2 ~ "^(bookworm|trixie|forky|stable|oldstable|testing)/main$" { print $1; exit }')
  [[ $mirror ]] || { echo "apt's configuration names no mirror of Debian" >&2; return 1; }
  local script=/usr/share/debootstrap/scripts/$2
  [[ -e $script ]] || script=/usr/share/debootstrap/scripts/sid # an older debootstrap does not know the suite
  debootstrap --variant=minbase --include=rabbitmq-server "$2" "$1/root" "$mirror" "$script" >"$1/log" || { tail -30 "$1/log" >&2; return 1; }
  echo "127.0.0.1 localhost" >"$1/root/etc/hosts"
}

fetch_python() { # DIR
  python3 -m venv --clear "$1/venv" >"$1/log" 2>&1 || /usr/bin/python3 -m venv --clear "$1/venv" >"$1/log" 2>&1 ||
    { cat "$1/log" >&2; return 1; }
  "$1/venv/bin/python" -m pip install -q --no-deps --disable-pip-version-check -r brokers/python/requirements.txt
}

fetch() { # NAME HASH FUNCTION ARGUMENT...
  local dir=$cache/$1 began=$SECONDS
  is_complete "$1" "$2" && return # by another run
  if grep -q " $dir/" /proc/self/mountinfo 2>/dev/null; then
    echo "something is mounted below $dir: unmount it, then try again" >&2
    return 1
  fi
  rm -rf "$dir"
  mkdir -p "$dir"
  "$3" "$dir" "${@:4}"
  echo "$2" >"$dir/complete"
  echo "fetched $1 into $dir in $((SECONDS - began)) s"
}

can_install() {
  [[ ${REDELIVER_NO_INSTALL-} != 1 && $(id -u) == 0 ]] && command -v apt-get >/dev/null &&
    grep -Eq '^ID(_LIKE)?=.*(debian|ubuntu)' /etc/os-release
}

# The tests start the brokers that they need, so the packages' own services must not start.
install_packages() {
  export DEBIAN_FRONTEND=noninteractive
  if [[ ! -e /usr/sbin/policy-rc.d ]]; then
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod +x /usr/sbin/policy-rc.d
  fi
  apt-get update -q && apt-get install -y -q --no-install-recommends "${packages[@]}"
}

(($#)) || set -- test
for part in "$@"; do need "$part"; done

if ((${#packages[@]})) && ! can_install; then
  {
    echo "These packages are missing:"
    printf '  %s\n' "${reasons[@]}"
    echo "On Debian 12, install them with: apt-get install -y --no-install-recommends ${packages[*]}"
    echo "Or start a docker daemon, or name running brokers; see \"What you need\" in CONTRIBUTING.md."
  } >&2
  exit 1
fi
if ((${#packages[@]})); then
  echo "Installing ${packages[*]} with apt-get (REDELIVER_NO_INSTALL=1 turns this off)."
  mkdir -p "$cache"
  install_packages >"$cache/apt.log" 2>&1 || { tail -30 "$cache/apt.log" >&2; exit 1; }
fi
((${#fetches[@]})) || exit 0

mkdir -p "$cache"
exec 9>"$cache/setup.lock"
! command -v flock >/dev/null || flock 9
# Only one Maven may use its repository at a time. The other fetches run in parallel.
running=()
for item in "${fetches[@]}"; do
  [[ $item == *" fetch_jars "* ]] && continue
  (set -e; fetch $item) & # the words are the arguments
  running+=($!)
done
for item in "${fetches[@]}"; do
  [[ $item == *" fetch_jars "* ]] || continue
  (set -e; fetch $item)
done
for process in ${running[@]+"${running[@]}"}; do wait "$process"; done
