# Real servers of S3's protocol for tools/g4-server and tools/quickstart --g4, which source this file.
#
#   g4_servers_take_option "$@"         takes --server PATH, --swift or --radosgw from the arguments, if they
#                                       begin with one; sets g4_taken to the number of arguments that it took
#                                       (PATH of a program called minio: MinIO)
#   g4_find_server                      which server it will be: the one asked for; else versitygw from PATH;
#                                       else versitygw installed by Go into build/go; else Swift. It exits with
#                                       2 and says what to install, if there is none
#   g4_start_server DIRECTORY           starts it in DIRECTORY, with an empty bucket `kvkeep`; sets g4_endpoint and
#                                       g4_credentials. It exits with 1 if the server does not serve
#   g4_stop_server                      for the trap of EXIT
#   g4_describe_server                  prints its name and version
#
# It is called in the root of the checkout.
# shellcheck shell=bash
# shellcheck disable=SC2034  # variables that whoever sources this reads

# The version that kvkeep's results are of (tiers/objects/README.md).
readonly g4_versitygw_module=github.com/versity/versitygw/cmd/versitygw@v1.8.0
readonly g4_versitygw_built=$PWD/build/go/versitygw
# Debian's Python, for which python3-swift is installed, whatever other python3 is first in PATH.
readonly g4_debian_python=/usr/bin/python3
readonly g4_key_id=kvkeep:test g4_secret=secret-of-a-test
readonly g4_starts_within_seconds=60

g4_server="" # a path of versitygw or minio, "swift" or "radosgw"
g4_server_pid=""
g4_taken=0

g4_servers_die() {
  local status=$1
  shift
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit "$status"
}

g4_servers_take_option() {
  g4_taken=0
  case "${1:-}" in
    --server)
      [[ -n ${2:-} ]] || g4_servers_die 2 "--server wants a path of versitygw or minio"
      [[ -x $2 ]] || g4_servers_die 2 "--server $2: there is no program"
      g4_server=$2 g4_taken=2
      ;;
    --swift) g4_server=swift g4_taken=1 ;;
    --radosgw) g4_server=radosgw g4_taken=1 ;;
  esac
}

# Says the packages that are missing.
g4_swift_misses() {
  "$g4_debian_python" -c 'import swift.common' 2>/dev/null || printf 'python3-swift '
  command -v memcached >/dev/null || printf 'memcached '
}

# The same of Ceph.
g4_radosgw_misses() {
  local program
  for program in ceph-mon ceph-osd radosgw; do
    command -v "$program" >/dev/null || printf '%s ' "$program"
  done
}

g4_find_server() {
  local missing
  if [[ $g4_server == swift ]]; then
    missing=$(g4_swift_misses)
    [[ -z $missing ]] || g4_servers_die 2 "Swift is not installed:" \
      "as root run apt-get install --no-install-recommends ${missing% }"
  elif [[ $g4_server == radosgw ]]; then
    missing=$(g4_radosgw_misses)
    [[ -z $missing ]] || g4_servers_die 2 "Ceph is not installed:" \
      "as root run apt-get install --no-install-recommends ${missing% }"
  fi
  [[ -z $g4_server ]] || return 0
  g4_server=$(command -v versitygw || true)
  [[ -z $g4_server && -x $g4_versitygw_built ]] && g4_server=$g4_versitygw_built
  [[ -z $g4_server ]] || return 0
  if command -v go >/dev/null; then
    if GOBIN=${g4_versitygw_built%/*} go install "$g4_versitygw_module"; then
      g4_server=$g4_versitygw_built
      return 0
    fi
    echo "${0##*/}: Go did not install $g4_versitygw_module" >&2
  fi
  [[ -z $(g4_swift_misses) ]] || g4_servers_die 2 "there is no server of S3's protocol. Install versitygw," \
    "or Go 1.25, which then installs it, or Swift: apt-get install --no-install-recommends python3-swift memcached"
  g4_server=swift
}

g4_describe_server() {
  local version
  if [[ $g4_server == swift ]]; then
    printf 'OpenStack Swift %s with s3api\n' "$("$g4_debian_python" -c 'import swift; print(swift.__version__)')"
  elif [[ $g4_server == radosgw ]]; then
    printf 'Ceph radosgw %s\n' "$(radosgw --version | awk '{ print $3 }')"
  elif [[ ${g4_server##*/} == minio ]]; then
    "$g4_server" --version | head -n 1
  else
    # A binary that Go installed does not know its version, but Go does.
    version=$(go version -m "$g4_server" 2>/dev/null | awk '$1 == "mod" { print $3 }') || true
    [[ -n $version ]] || version=$("$g4_server" --version | sed -n 's/^Version *: *//p')
    printf 'versitygw %s\n' "$version"
  fi
}

g4_start_server() {
  local directory=$1 port tries
  mkdir -p "$directory"
  g4_credentials=$directory/credentials
  (umask 077 && printf '%s\n' "$g4_key_id" "$g4_secret" >"$g4_credentials")
  if [[ $g4_server == swift || $g4_server == radosgw ]]; then
    # They say which port they took once they serve.
    "$g4_debian_python" "tools/g4_$g4_server.py" "$directory/server" kvkeep "$g4_credentials" \
      >"$directory/log" 2>&1 &
    g4_server_pid=$!
  else
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    mkdir -p "$directory/objects/kvkeep"
    # Each reads its own of these names.
    local -x ROOT_ACCESS_KEY=$g4_key_id ROOT_SECRET_KEY=$g4_secret
    local -x MINIO_ROOT_USER=$g4_key_id MINIO_ROOT_PASSWORD=$g4_secret
    if [[ ${g4_server##*/} == minio ]]; then
      "$g4_server" server "$directory/objects" --address "127.0.0.1:$port" --quiet >"$directory/log" 2>&1 &
    else
      "$g4_server" --port "127.0.0.1:$port" --keep-alive --quiet posix "$directory/objects" >"$directory/log" 2>&1 &
    fi
    g4_server_pid=$!
  fi
  for ((tries = 0; tries < g4_starts_within_seconds * 10; ++tries)); do
    if [[ $g4_server == swift || $g4_server == radosgw ]]; then
      [[ ! -e $directory/server/port ]] || { port=$(<"$directory/server/port") && break; }
    else
      (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
    fi
    kill -0 "$g4_server_pid" 2>/dev/null || break
    sleep 0.1
  done
  if ((tries == g4_starts_within_seconds * 10)) || ! kill -0 "$g4_server_pid" 2>/dev/null; then
    tail -n 20 "$directory/log" >&2
    g4_servers_die 1 "the server did not start; its last lines are above"
  fi
  g4_endpoint=http://127.0.0.1:$port
}

g4_stop_server() {
  [[ -n $g4_server_pid ]] || return 0
  kill "$g4_server_pid" 2>/dev/null || true
  wait "$g4_server_pid" 2>/dev/null || true
  g4_server_pid=""
}
