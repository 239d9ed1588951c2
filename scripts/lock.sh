#!/usr/bin/env bash
# Resolve pyproject.toml (runtime, dev and build dependencies) into requirements.lock. Arguments go to pip-compile.
set -euo pipefail
cd "$(dirname "$0")/.."

fresh=$(mktemp)
trap 'rm -f "$fresh"' EXIT
cp requirements.lock "$fresh" 2>/dev/null || true # pip-compile keeps the pins that still fit

echo "lock: resolving (about a minute)"
# No header, annotation or option: they would name this machine's paths and index. pip itself is not pinned:
# the one that comes with Python does, and an installer that replaces itself is one more thing to go wrong.
.venv/bin/pip-compile --quiet --extra dev --build-deps-for editable --strip-extras --no-allow-unsafe --unsafe-package pip \
  --no-header --no-annotate --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options \
  --output-file "$fresh" "$@" pyproject.toml </dev/null

{
  echo "# Made by 'make lock' from pyproject.toml; do not edit."
  grep -E '^[A-Za-z0-9]' "$fresh"
} >requirements.lock
echo "lock: $(grep -c == requirements.lock) packages pinned"
