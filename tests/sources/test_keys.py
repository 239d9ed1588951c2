"""Key mixes: the frequencies they promise, and nothing but the draw and the time decides."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.errors import FlowError
from penstock.sources import hot, uniform, zipf
from penstock.sources.keys import Hot, Zipf

DRAWS = np.random.Generator(np.random.Philox(7)).random(200_000)
TIMES = np.arange(200_000) / 1000


def _chi_square(counts: np.ndarray, shares: np.ndarray) -> float:
    expected = shares * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("s", [0.0, 0.626, 1.059, 2.0])
def test_zipf_has_its_frequencies(s: float) -> None:
    mix = zipf(500, s)
    counts = np.bincount(mix.draw(DRAWS, TIMES), minlength=500)
    assert isinstance(mix, Zipf)
    shares = np.arange(1, 501) ** -s / (np.arange(1, 501) ** -s).sum()
    # 499 degrees of freedom: mean 499, deviation 32.
    assert _chi_square(counts, shares) < 499 + 5 * 32


def test_uniform_has_its_frequencies() -> None:
    assert _chi_square(np.bincount(uniform(100).draw(DRAWS, TIMES), minlength=100), np.full(100, 0.01)) < 99 + 5 * 14


def test_keys_stay_in_range_at_the_ends_of_the_draw() -> None:
    ends = np.array([0.0, np.nextafter(1.0, 0.0)])
    for mix in (uniform(3), uniform(10**15), zipf(3), zipf(1), hot(3, 0.2, 1), hot(1, 1.0, 1), hot(2, 0.0, 1)):
        drawn = mix.draw(ends, np.zeros(2))
        assert drawn.min() >= 0 and drawn.max() < mix.n


def test_the_hot_key_has_its_share_and_moves() -> None:
    mix = hot(50, share=0.4, every_s=20)
    assert isinstance(mix, Hot)
    drawn = mix.draw(DRAWS, TIMES)
    seen = []
    for epoch in range(10):
        part = drawn[(epoch * 20 <= TIMES) & ((epoch + 1) * 20 > TIMES)]
        counts = np.bincount(part, minlength=50)
        assert abs(counts.max() / len(part) - (0.4 + 0.6 / 50)) < 0.02
        others = np.delete(counts, counts.argmax())
        assert _chi_square(others, np.full(49, 1 / 49)) < 48 + 5 * 10
        seen.append(int(counts.argmax()))
    assert len(set(seen)) == 10


def test_the_hot_key_visits_every_key() -> None:
    for n in (1, 2, 3, 6, 10, 50, 97):
        mix = hot(n, 0.5, 1)
        assert isinstance(mix, Hot)
        assert set(mix.hot_key(np.arange(n, dtype=float)).tolist()) == set(range(n))


def test_a_key_depends_on_its_own_draw_and_time_only() -> None:
    for mix in (uniform(10), zipf(10), hot(10, 0.5, 1)):
        whole = mix.draw(DRAWS[:1001], TIMES[:1001])
        parts = [mix.draw(DRAWS[i : i + 7], TIMES[i : i + 7]) for i in range(0, 1001, 7)]
        assert (whole == np.concatenate(parts)).all()


@pytest.mark.parametrize(
    "build",
    [
        lambda: uniform(0),
        lambda: uniform(2.5),  # type: ignore[arg-type]
        lambda: zipf(10, -1),
        lambda: zipf(10, float("nan")),
        lambda: hot(10, 1.5, 1),
        lambda: hot(10, 0.5, 0),
    ],
)
def test_bad_parameters_are_refused_with_a_remedy(build: object) -> None:
    with pytest.raises(FlowError, match="Remedy"):
        build()  # type: ignore[operator]
