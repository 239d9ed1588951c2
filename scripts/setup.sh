#!/usr/bin/env bash
# Make .venv and install into it what requirements.lock pins, then Penstock itself.
# May be run again at any time: it does nothing when .venv is fresh, and rebuilds what a killed run left half-made.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv
stamp=$venv/.installed       # written last: all went well
unfinished=$venv/.installing # there only while we work: found at the start, the last run was cut off

say() { printf 'setup: %s\n' "$*"; }
fail() {
  printf 'setup: %s\n' "$*" >&2
  exit 1
}

# Run it, do not just look for it: a version manager's shim may be on PATH with no Python behind it.
fit() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 </dev/null; }

find_python() {
  local name
  for name in ${PYTHON:-} python3.11 python3.12 python3.13 python3; do
    if fit "$name"; then
      echo "$name"
      return
    fi
  done
  return 1
}

# Debian ships Python without its venv module.
need_ensurepip() {
  "$1" -c 'import ensurepip' 2>/dev/null && return
  local package
  package="$(basename "$1")-venv"
  if [[ -e /etc/debian_version && $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    say "installing $package"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends "$package"; } >/dev/null </dev/null && return
  fi
  fail "$1 cannot make virtual environments: install its venv module (Debian: apt-get install $package)"
}

# Two makes at once must not install into one .venv. (macOS has no flock: there, do not.)
if command -v flock >/dev/null; then
  exec 9<scripts/setup.sh
  flock 9
fi
if [[ $stamp -nt requirements.lock && $stamp -nt pyproject.toml && $stamp -nt scripts/setup.sh ]]; then
  exit 0 # another make did it while we waited
fi

if [[ -e $unfinished ]] || ! fit $venv/bin/python || ! $venv/bin/python -c 'import pip' 2>/dev/null; then
  python=$(find_python) || fail "Python 3.11+ not found: install it, or name one with 'make setup PYTHON=/path/to/python3'"
  need_ensurepip "$python"
  if [[ -e $venv ]]; then say "$venv is unusable or half-made: making it anew"; fi
  say "making $venv with $("$python" --version)"
  rm -rf $venv
  mkdir $venv
  touch $unfinished # before venv fills the folder: it may be killed too
  "$python" -m venv $venv || fail "'$python -m venv' failed: see above"
fi

pip() { $venv/bin/python -m pip --disable-pip-version-check --no-input "$@" </dev/null; }

touch $unfinished
say "installing the pinned dependencies (PySpark is large: one to three minutes the first time)"
# Wheels only, so that nothing is ever compiled; PySpark is pure Python and published as source.
pip install --quiet --only-binary=:all: --no-binary=pyspark -r requirements.lock ||
  fail "pip could not install requirements.lock: see above, then run make again"
say "installing Penstock"
# The lock brings setuptools, so the build needs no network.
pip install --quiet --no-deps --no-build-isolation --editable . ||
  fail "pip could not install Penstock: see above, then run make again"
rm -f $unfinished
touch $stamp
say "done"
