#!/bin/sh
# fresh_pch.sh COMPILER ARGUMENTS...: compiles a precompiled header, without the one that is there.
#
# ccache preprocesses a header to know it. GCC would then take the old precompiled one in place of
# the header's text, and ccache would find the old result: a changed header would never be seen.
set -eu
before=
for argument; do
  [ "$before" != -o ] || rm -f -- "$argument"
  before=$argument
done
exec "$@"
