"""What Python workers and the JVM do with the memory that they have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.engine.spark.java import java_home
from penstock.engine.spark.session import KEPT_MEMORY, STEADY_HEAP

CODE = """
import numpy as np
from penstock.engine.spark.worker_memory import give_back, resident_bytes

assert not give_back(most=1 << 40)  # far from it: nothing is done
pieces = [np.ones(1 << 18) for _ in range(100)]  # 200 MB in arrays of 2 MB, as small as those of a batch
full = resident_bytes()
del pieces
kept = resident_bytes()
assert give_back(most=kept - 1)
assert not give_back(most=1)  # what is left is needed: it is not tried again until there is much more
print(full >> 20, kept >> 20, resident_bytes() >> 20)
"""


def test_a_worker_keeps_its_memory_until_it_is_too_much() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], env={"PATH": "", **KEPT_MEMORY}, capture_output=True, text=True, check=True
    )
    full, kept, after = (int(word) for word in done.stdout.split())
    assert kept >= full - 20, "what a task used stays for the next one"
    assert after <= full - 150, "a large task's goes back"


@pytest.mark.parametrize("limit", ["64m", "1g"])
def test_the_heap_is_whole_from_the_start_whatever_its_limit(limit: str) -> None:
    java = [str(java_home() / "bin" / "java"), f"-Xmx{limit}", *STEADY_HEAP, "-XX:+PrintFlagsFinal", "-version"]
    printed = subprocess.run(java, capture_output=True, text=True, check=True).stdout
    flags = {words[1]: words[3] for line in printed.splitlines() if len(words := line.split()) > 3 and words[2] == "="}
    assert flags["InitialHeapSize"] == flags["MaxHeapSize"]
    assert flags["UseAdaptiveSizePolicy"] == "false"


def test_the_guide_names_the_options_of_the_heap() -> None:
    guide = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-flow.md"
    assert f"`{' '.join(STEADY_HEAP)}`" in guide.read_text()
