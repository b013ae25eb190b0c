#!/usr/bin/env bash
# Runs a command with a throw-away PostgreSQL made from server programs of your own, to test on another version:
#
#   scripts/with-postgres.sh /usr/lib/postgresql/15/bin -- npm test
#
# TEST_DATABASE_URL names the server for the command. It has no durability and is removed at the end. As root, the
# server runs as "nobody", since PostgreSQL refuses to run as root.
set -euo pipefail

if [[ $# -lt 3 || $2 != -- ]]; then
  echo "usage: $0 FOLDER_OF_SERVER_PROGRAMS -- COMMAND..." >&2
  exit 2
fi
bin=$1
shift 2

as_server() { "$@"; }
folder=$(mktemp -d)
if [[ $(id -u) == 0 ]]; then
  chown 65534:65534 "$folder"
  as_server() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
fi

stop() {
  (cd / && as_server "$bin/pg_ctl" --pgdata="$folder/data" --mode=immediate --silent stop) || true
  rm -rf "$folder"
}
trap stop EXIT

port=$(node -e 'const s = require("node:net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close() })')
settings="-c listen_addresses=127.0.0.1 -c port=$port -c unix_socket_directories='' -c max_connections=200 -c fsync=off -c synchronous_commit=off -c full_page_writes=off"
(
  cd /
  as_server "$bin/initdb" --pgdata="$folder/data" --username=coppice --auth=trust --encoding=UTF8 --locale=C --no-sync >/dev/null
  as_server "$bin/pg_ctl" --pgdata="$folder/data" --log="$folder/log" --options="$settings" --silent start || { cat "$folder/log" >&2; exit 1; }
)
"$bin/postgres" --version >&2
TEST_DATABASE_URL="postgresql://coppice@127.0.0.1:$port/postgres" "$@"
