from __future__ import annotations

import subprocess
import sys

from penstock.engine.spark.session import KEPT_MEMORY

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
