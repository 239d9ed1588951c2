"""All scenarios by name, in the order in which they run."""

from __future__ import annotations

from penstock.bench.adaptive import full, short
from penstock.bench.adaptive.description import Scenario

FULL = (full.staircase(), full.trading(), full.burst(), full.hotkey())
SHORT = (
    short.low_load(),
    short.service(),
    short.frames(),
    short.mandelbrot(),
    short.tweets(),
    short.livestream(),
)
SCENARIOS: dict[str, Scenario] = {made.name: made for made in (*FULL, *SHORT)}
