"""Load as a function of time: arrivals per second, cost per item, and the share of the hottest key.

The shapes that expose a policy: steps by 2 and 4, a ramp, a sine, square bursts, a trading day, a hot key that moves, a
cost per item that doubles, and bursts shorter than the time a host needs to widen ("deadly").
The seed moves every event in time and changes its size a little, so that no policy can be tuned to one trace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.errors import FlowError

Floats = NDArray[np.float64]
Curve = Callable[[Floats], Floats]


def _one(t: Floats) -> Floats:
    return np.ones_like(t)


def _zero(t: Floats) -> Floats:
    return np.zeros_like(t)


@dataclass(frozen=True)
class Load:
    """A load over `duration_s` seconds; the curves take an array of times.

    >>> flat = Load("flat", 60.0, lambda t: np.full_like(t, 100.0))
    >>> flat.rate(np.array([0.0, 59.0])).tolist(), flat.cost(np.array([0.0])).tolist()
    ([100.0, 100.0], [1.0])
    """

    name: str
    duration_s: float
    rate: Curve  # items per second
    cost: Curve = _one  # factor on every service time
    hot: Curve = _zero  # share of the hottest key, which one subtask must take alone
    hot_at: Curve = _zero  # which subtask that is (taken modulo the width)
    events: tuple[float, ...] = ()  # when something happens: for settling times
    selectivity: Curve = _one  # factor on the selectivity of operators that filter

    def peak(self) -> float:
        """The greatest rate, looked up every 100 ms."""
        return float(self.rate(np.arange(0.0, self.duration_s, 0.1)).max())


def steps(levels: list[tuple[float, float]]) -> Curve:
    """A stair case from (time, level) pairs; before the first time its level holds too.

    >>> steps([(0.0, 1.0), (10.0, 3.0)])(np.array([0.0, 9.9, 10.0])).tolist()
    [1.0, 1.0, 3.0]
    """
    times = np.array([t for t, _ in levels])
    values = np.array([v for _, v in levels])

    def curve(t: Floats) -> Floats:
        return values[np.maximum(np.searchsorted(times, t, side="right") - 1, 0)]

    return curve


def shape(name: str, seed: int, base: float = 400.0) -> Load:
    """One of `SHAPES`, with the events of this seed, around `base` items per second.

    >>> shape("step2", 0).peak() / float(shape("step2", 0).rate(np.array([0.0]))[0])
    2.0
    >>> sorted(SHAPES)
    ['bursts', 'deadly', 'ramp', 'service', 'sine', 'skew', 'step2', 'step4', 'trading']
    """
    if name not in SHAPES:
        raise FlowError(f"load '{name}'", "there is no such shape", "use one of " + ", ".join(sorted(SHAPES)))
    return SHAPES[name](np.random.default_rng([seed, sum(name.encode())]), base)


def _step(name: str, factor: float) -> Callable[[np.random.Generator, float], Load]:
    def make(rng: np.random.Generator, base: float) -> Load:
        up = 240.0 + 60.0 * rng.random()
        down = up + 420.0 + 60.0 * rng.random()
        again = down + 240.0 + 60.0 * rng.random()
        rate = steps([(0.0, base), (up, factor * base), (down, base), (again, factor * base)])
        return Load(name, 1400.0, rate, events=(up, down, again))

    return make


def _ramp(rng: np.random.Generator, base: float) -> Load:
    t0, t1 = 180.0 + 60.0 * rng.random(), 700.0 + 60.0 * rng.random()
    top = base * (3.5 + rng.random())

    def rate(t: Floats) -> Floats:
        return np.interp(t, [0.0, t0, t1, t1 + 120.0, 1300.0], [base, base, top, top, base])

    return Load("ramp", 1400.0, rate, events=(t0, t1))


def _sine(rng: np.random.Generator, base: float) -> Load:
    period, phase = 400.0 + 100.0 * rng.random(), 2.0 * np.pi * rng.random()
    depth = 0.6 + 0.2 * rng.random()

    def rate(t: Floats) -> Floats:
        return 2.0 * base * (1.0 + depth * np.sin(2.0 * np.pi * t / period + phase))

    return Load("sine", 1800.0, rate)


def _bursts(rng: np.random.Generator, base: float) -> Load:
    """Square bursts of half a minute at irregular times."""
    return _square("bursts", rng, base, length=(25.0, 45.0), gap=(90.0, 180.0), size=(2.0, 3.0))


def _deadly(rng: np.random.Generator, base: float) -> Load:
    """Bursts of 3 to 6 s: over before any host of this project's scenarios (8 s) has widened."""
    return _square("deadly", rng, base, length=(3.0, 6.0), gap=(60.0, 120.0), size=(1.8, 2.6))


def _square(
    name: str,
    rng: np.random.Generator,
    base: float,
    length: tuple[float, float],
    gap: tuple[float, float],
    size: tuple[float, float],
) -> Load:
    levels, events, at = [(0.0, base)], [], 120.0
    while at < 1700.0:
        lasts = rng.uniform(*length)
        levels += [(at, base * rng.uniform(*size)), (at + lasts, base)]
        events.append(at)
        at += lasts + rng.uniform(*gap)
    return Load(name, 1800.0, steps(levels), events=tuple(events))


def _trading(rng: np.random.Generator, base: float) -> Load:
    """A day in half an hour: a jump at the opening, a U over the day, a rise to the close, news in between."""
    opens, closes = 150.0, 1650.0
    news = np.sort(rng.uniform(opens + 200.0, closes - 200.0, 3))
    heights = rng.uniform(0.5, 1.2, 3)

    def rate(t: Floats) -> Floats:
        x = np.clip((t - opens) / (closes - opens), 0.0, 1.0)
        day = 1.0 + 2.2 * (2.0 * x - 1.0) ** 2 + 0.8 * np.exp(-x / 0.03)
        for at, height in zip(news, heights, strict=True):
            day = day + np.where(t >= at, height * np.exp(-np.maximum(t - at, 0.0) / 40.0), 0.0)
        return base * np.where((t >= opens) & (t < closes), day, 0.4)

    return Load("trading", 1800.0, rate, events=(opens, *map(float, news), closes))


def _skew(rng: np.random.Generator, base: float) -> Load:
    """The load stays; a hot key grows, then another one takes over on another subtask."""
    first, second = 300.0 + 60.0 * rng.random(), 800.0 + 60.0 * rng.random()
    share = 0.03 + 0.01 * rng.random()  # at 600 items/s of 20 ms: 0.36 to 0.48 of a subtask for one key
    hot = steps([(0.0, 0.0), (first, share), (second, 0.8 * share)])
    where = steps([(0.0, 0.0), (second, 3.0)])
    return Load("skew", 1300.0, lambda t: np.full_like(t, 1.5 * base), hot=hot, hot_at=where, events=(first, second))


def _service(rng: np.random.Generator, base: float) -> Load:
    """The cost per item doubles, and later falls back."""
    up, down = 300.0 + 60.0 * rng.random(), 800.0 + 60.0 * rng.random()
    cost = steps([(0.0, 1.0), (up, 2.0), (down, 1.0)])
    return Load("service", 1300.0, lambda t: np.full_like(t, base), cost=cost, events=(up, down))


SHAPES: dict[str, Callable[[np.random.Generator, float], Load]] = {
    "step2": _step("step2", 2.0),
    "step4": _step("step4", 4.0),
    "ramp": _ramp,
    "sine": _sine,
    "bursts": _bursts,
    "trading": _trading,
    "skew": _skew,
    "service": _service,
    "deadly": _deadly,
}
