#!/usr/bin/env bash
# G4 on OpenStack Swift with its s3api, by tools/g4-server. Skipped (77) where Swift is not installed.
#
# Usage: g4_swift_test.sh BIN
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/g4_servers.sh

missing=$(g4_swift_misses)
if [[ -n $missing ]]; then
  echo "skipped: Swift is not installed (apt-get install --no-install-recommends ${missing% })"
  exit 77
fi
exec tools/g4-server --swift --bin "$1"
