"""Make sure that Java 17+ is there: find it, else install it where that is possible, else say in one line what to do.

Run by `make setup` with the Python of .venv. Where Java lives is Penstock's own knowledge (`engine.spark.java`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from penstock.engine.spark.java import ADVICE, java_home
from penstock.errors import PenstockError

# Newer Debians have no 17; Spark runs as well on the newer Java that is their default.
PACKAGES = ("openjdk-17-jre-headless", "default-jre-headless")


def can_install() -> bool:
    """Tell whether this is Debian (or a child of it) and we are root."""
    return Path("/etc/debian_version").exists() and os.geteuid() == 0 and shutil.which("apt-get") is not None


def run(command: list[str]) -> bool:
    """Run a command without questions; show what it said only if it failed."""
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.stderr.write(done.stdout)
    return done.returncode == 0


def install(*, dry_run: bool) -> bool:
    """Install a headless Java with apt, the first package that this Debian has."""
    update = ["apt-get", "update"]
    attempts = [["apt-get", "install", "-y", "--no-install-recommends", package] for package in PACKAGES]
    if dry_run:
        print(f"java: would run: {' '.join(update)} && {' '.join(attempts[0])}")
        return True
    print(f"java: none found, installing {PACKAGES[0]} (about a minute)", flush=True)
    return run(update) and any(run(attempt) for attempt in attempts)


def main() -> int:
    """Return 0 if there is a Java 17+ now."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--assume-missing", action="store_true", help="act as if no Java was found")
    options.add_argument("--dry-run", action="store_true", help="print the apt command instead of running it")
    chosen = options.parse_args()
    if not chosen.assume_missing:
        try:
            print(f"java: {java_home()}")
            return 0
        except PenstockError:
            pass
    if not can_install() or not install(dry_run=chosen.dry_run):
        print(f"java: {ADVICE}", file=sys.stderr)
        return 1
    if chosen.dry_run:
        return 0
    try:
        print(f"java: {java_home()}")
    except PenstockError as error:
        print(f"java: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
