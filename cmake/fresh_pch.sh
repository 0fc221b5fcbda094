#!/bin/sh
# fresh_pch.sh COMPILER ARGUMENTS...: compiles a precompiled header, ignoring the existing one.
#
# ccache preprocesses a header to identify it. GCC would then use the old precompiled header instead
# of the text, and ccache would find the old result: a changed header would have no effect.
set -eu
before=
for argument; do
  [ "$before" != -o ] || rm -f -- "$argument"
  before=$argument
done
exec "$@"
