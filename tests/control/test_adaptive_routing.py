"""Routes of key groups: a hot key sits alone one batch after it moved, and chance moves nothing."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.observation import OperatorView
from penstock.control.policies.adaptive_routing import Router, imbalance, lightest_first

GROUPS = 64


def seen(groups: np.ndarray, width: int) -> OperatorView:
    rows = tuple(float(rows) for rows in groups)
    return OperatorView("sum", width, 1, 12, 1.0, 1.0, 0.1, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.1, groups=rows)


def shares(hot: int, share: float = 0.25) -> np.ndarray:
    found = np.full(GROUPS, (1.0 - share) / GROUPS)
    found[hot] += share
    return found


def test_a_hot_key_that_moved_is_alone_after_one_batch() -> None:
    """::

    batch   0 .. 9: group 3 hot    10: group 40    11
    route                              old one     group 40 alone
    """
    rng, router, width = np.random.default_rng(4), Router(), 4
    route: tuple[int, ...] | None = None
    for _ in range(10):
        route = router.route(seen(rng.multinomial(800, shares(3)), width), width, route)
    after = shares(40)
    assert route is not None
    assert imbalance(after, route, width) > 1.4, "the old route suits the old hot key"
    route = router.route(seen(rng.multinomial(800, after), width), width, route)
    assert route is not None
    assert imbalance(after, route, width) < 1.2
    assert sum(task == route[40] for task in route) <= 3, "it is as good as alone"


def test_small_batches_move_nothing_by_chance() -> None:
    rng, router, width = np.random.default_rng(5), Router(), 4
    true = shares(3)
    route: tuple[int, ...] | None = None
    kept = []
    for _ in range(60):
        route = router.route(seen(rng.multinomial(40, true), width), width, route)
        kept.append(imbalance(true, route or [g % width for g in range(GROUPS)], width))
    assert float(np.mean(kept[10:])) < 1.25, "what is smoothed over some batches is about right"


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, 500), min_size=8, max_size=8), min_size=1, max_size=12),
    widths=st.lists(st.integers(1, 6), min_size=12, max_size=12),
)
def test_every_route_names_a_task_for_every_group(batches: list[list[int]], widths: list[int]) -> None:
    router = Router()
    route: tuple[int, ...] | None = None
    for rows, width in zip(batches, widths, strict=False):
        route = router.route(seen(np.array(rows), width), width, route)
        assert route is None or (len(route) == 8 and min(route) >= 0 and max(route) < width)
        if route is not None and sum(rows):
            assert imbalance(rows, lightest_first(rows, width), width) <= imbalance(rows, route, width) * 4 / 3 + 1e-9
