"""Find a Java 17+ runtime, or say in one line what to do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from penstock.errors import PenstockError

MINIMUM = 17
ADVICE = f"Java {MINIMUM}+ not found: install a JDK (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"


def version_of(java: str | Path) -> int | None:
    """Return the major version of a `java` binary, None if it does not run.

    >>> version_of("/no/such/java") is None
    True
    """
    try:
        shown = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', shown.stderr + shown.stdout)
    if found is None:
        return None
    major = int(found.group(1))
    return int(found.group(2) or 0) if major == 1 else major  # Java 8 calls itself 1.8


def candidates() -> list[Path]:
    """List the places where a JDK usually lives, the user's own choice first."""
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("java")
    if on_path:
        homes.append(Path(on_path).resolve().parent.parent)
    for root in ("/usr/lib/jvm", "/opt/java", "/opt", "/Library/Java/JavaVirtualMachines"):
        if Path(root).is_dir():
            homes += sorted(Path(root).glob("*")) + sorted(Path(root).glob("*/Contents/Home"))
    return homes


@cache
def java_home() -> Path:
    """Return the home of the first Java 17+ found; raise with one line of advice if there is none."""
    for home in candidates():
        if (version_of(home / "bin" / "java") or 0) >= MINIMUM:
            return home
    raise PenstockError(ADVICE)
