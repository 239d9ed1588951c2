"""All kernels against one oracle: recompute. Tuple by tuple, over ranges, by scans and by ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.windows.kernels import (
    Algebra,
    DabaLite,
    Kernel,
    MonotonicDeque,
    OrderStatistics,
    Ranges,
    Recompute,
    SubtractOnEvict,
    TwoStacks,
    choose,
)
from penstock.windows.scans import scan_arrays, scan_arrays_back

FAST = settings(max_examples=200, deadline=None, derandomize=True)


def plus(a: Any, b: Any) -> Any:
    return a + b


def minus(a: int, b: int) -> int:
    return a - b


def earliest(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    """arg_min: the lesser value, of equals the older."""
    return a if a[0] <= b[0] else b


# a window of texts joined shows every value and the order; pairs show which of two equals was chosen
CASES: dict[str, tuple[Callable[[], Kernel[Any]], Callable[[Any, Any], Any], Callable[[int, int], Any]]] = {
    "recompute": (lambda: Recompute(plus), plus, lambda i, v: chr(97 + v)),
    "subtract": (lambda: SubtractOnEvict(plus, minus), plus, lambda i, v: v - 12),
    "two stacks": (lambda: TwoStacks(plus), plus, lambda i, v: chr(97 + v)),
    "daba lite": (lambda: DabaLite(plus), plus, lambda i, v: chr(97 + v)),
    "deque": (lambda: MonotonicDeque(earliest), earliest, lambda i, v: (v, i)),
    "two stacks, selective": (lambda: TwoStacks(earliest), earliest, lambda i, v: (v, i)),
    "daba lite, selective": (lambda: DabaLite(earliest), earliest, lambda i, v: (v, i)),
}


@pytest.mark.parametrize("name", CASES)
@FAST
@given(steps=st.lists(st.one_of(st.none(), st.integers(0, 25)), max_size=120))  # None: evict
def test_tuple_by_tuple(name: str, steps: list[int | None]) -> None:
    make, combine, value = CASES[name]
    kernel, held = make(), list[Any]()
    for i, step in enumerate(steps):
        if step is not None:
            kernel.insert(value(i, step))
            held.append(value(i, step))
        elif held:
            kernel.evict()
            held.pop(0)
        else:
            with pytest.raises(IndexError):
                kernel.evict()
            kernel = make()
        expected = None
        for one in held:
            expected = one if expected is None else combine(expected, one)
        assert kernel.query() == expected
        assert len(kernel) == len(held)


@FAST
@given(steps=st.lists(st.booleans(), max_size=300))
def test_daba_does_a_constant_number_of_combines_in_every_step(steps: list[bool]) -> None:
    calls = 0

    def counted(a: int, b: int) -> int:
        nonlocal calls
        calls += 1
        return a + b

    kernel: DabaLite[int] = DabaLite(counted)
    for insert in steps:
        before = calls
        if insert or not len(kernel):
            kernel.insert(1)
        else:
            kernel.evict()
        assert calls - before <= 3
        before = calls
        assert (kernel.query() or 0) == len(kernel)
        assert calls - before <= 1


def test_a_flip_of_two_stacks_costs_the_whole_window() -> None:
    calls = []
    kernel: TwoStacks[int] = TwoStacks(lambda a, b: calls.append(1) or a + b)  # type: ignore[func-returns-value]
    for i in range(100):
        kernel.insert(i)
    before = len(calls)
    kernel.evict()
    assert len(calls) - before == 99
    kernel.evict()
    assert len(calls) - before == 99


def test_a_deque_keeps_only_what_can_win() -> None:
    kernel: MonotonicDeque[int] = MonotonicDeque(max)
    for value in (1, 2, 3, 2, 1):
        kernel.insert(value)
    assert (kernel.held, len(kernel), kernel.query()) == (3, 5, 3)


def test_choice_follows_the_algebra() -> None:
    exact, rounds = Algebra(plus, minus, exact=True), Algebra(plus, minus)
    assert isinstance(choose(exact), SubtractOnEvict)
    assert isinstance(choose(exact, worst_case=True), SubtractOnEvict)
    assert isinstance(choose(rounds), TwoStacks)
    assert isinstance(choose(rounds, worst_case=True), DabaLite)
    assert isinstance(choose(Algebra(max, selective=True)), MonotonicDeque)
    assert isinstance(choose(Algebra(max, selective=True), worst_case=True), DabaLite)
    assert isinstance(choose(Algebra(plus, associative=False), worst_case=True), Recompute)


def test_subtraction_drifts_and_two_stacks_does_not() -> None:
    """Why doubles are never subtracted: one large value passes through the window and takes the small ones with it."""
    windows: dict[str, Kernel[float]] = {
        "subtract": SubtractOnEvict(plus, lambda a, b: a - b),
        "stacks": TwoStacks(plus),
    }
    for value in [0.1, 1e17, *[0.1] * 10]:
        for kernel in windows.values():
            kernel.insert(value)
            if len(kernel) > 5:
                kernel.evict()
    assert abs((windows["stacks"].query() or 0) - 0.5) < 1e-9
    assert abs((windows["subtract"].query() or 0) - 0.5) > 0.1


# --- vectorised ------------------------------------------------------------------------------------------------------

bounds = st.lists(st.tuples(st.integers(0, 150), st.integers(0, 150)), max_size=20)


@FAST
@given(
    rows=st.integers(0, 150),
    pairs=bounds,
    offset=st.one_of(st.none(), st.integers(-200, 200)),
    seed=st.integers(0, 999),
    share=st.sampled_from([1.0, 0.7, 0.05]),
)
def test_ranges(rows: int, pairs: list[tuple[int, int]], offset: int | None, seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    lo = np.array([min(*p, rows) for p in pairs], dtype=np.int64)
    hi = np.array([min(max(p), rows) for p in pairs], dtype=np.int64)
    position = None if offset is None else np.arange(rows) + offset
    longs = rng.integers(-5, 5, rows)
    doubles = rng.choice([0.5, -2.0, math.nan, math.inf, 1e300], rows)
    letters = np.array([chr(97 + v) for v in rng.integers(0, 26, rows)], dtype=object)
    valid = rng.random(rows) < share
    ranges = Ranges.over_rows(rows, lo, hi, position).keep(None if share == 1.0 else valid)
    if share == 1.0:
        valid[:] = True
    sums = ranges.add_longs(longs[valid], "sum")
    least, most = ranges.fold(doubles[valid], np.fmin), ranges.fold(doubles[valid], np.maximum)
    (joined,) = ranges.fold_arrays((letters[valid],), lambda a, b: (a[0] + b[0],))
    assert ranges.lengths.tolist() == [int(valid[a:b].sum()) for a, b in zip(lo, hi, strict=True)]
    for i, (a, b) in enumerate(zip(lo, hi, strict=True)):
        mine = valid[a:b]
        assert sums[i] == longs[a:b][mine].sum()
        if mine.any():
            assert repr(least[i]) == repr(np.fmin.reduce(doubles[a:b][mine]))
            assert repr(most[i]) == repr(np.maximum.reduce(doubles[a:b][mine]))
            assert joined[i] == "".join(letters[a:b][mine])


@pytest.mark.parametrize(("rows", "size", "slide"), [(5000, 1000, 1), (5000, 1024, 7), (5000, 1, 1), (100, 100, 1)])
def test_windows_of_one_length_need_at_most_two_levels(rows: int, size: int, slide: int) -> None:
    lo = np.arange(0, rows - size + 1, slide)
    assert len(Ranges.over_rows(rows, lo, lo + size).levels) <= 2


@FAST
@given(lengths=st.lists(st.integers(1, 100), max_size=6), long=st.sampled_from([0, 33, 1025, 1100]))
def test_scans_of_any_combine(lengths: list[int], long: int) -> None:
    lengths = [*lengths, *([long] if long else [])]
    starts = np.cumsum([0, *lengths[:-1]]) if lengths else np.zeros(0, dtype=np.int64)
    rows = int(sum(lengths))
    # an associative combine that does not commute: affine maps modulo a prime
    maps = tuple(np.random.default_rng(rows).integers(0, 97, rows) for _ in range(2))

    def after(a: Any, b: Any) -> Any:
        return a[0] * b[0] % 97, (a[1] * b[0] + b[1]) % 97

    ahead, behind = scan_arrays(maps, starts, after), scan_arrays_back(maps, starts, after)
    for start, length in zip(starts, lengths, strict=True):
        total = None
        for row in range(start, start + length):
            here = (maps[0][row], maps[1][row])
            total = here if total is None else after(total, here)
            assert (ahead[0][row], ahead[1][row]) == total
        total = None
        for row in range(start + length - 1, start - 1, -1):
            here = (maps[0][row], maps[1][row])
            total = here if total is None else after(here, total)
            assert (behind[0][row], behind[1][row]) == total


@FAST
@given(values=st.lists(st.integers(0, 70), max_size=60), data=st.data())
def test_order_statistics(values: list[int], data: st.DataObject) -> None:
    held = OrderStatistics(np.array(values, dtype=np.int64))
    size = len(values)
    for _ in range(5):
        a, b = sorted((data.draw(st.integers(0, size)), data.draw(st.integers(0, size))))
        bound = data.draw(st.integers(0, 200))
        one = np.array([a]), np.array([b])
        assert held.below(*one, np.array([bound])).tolist() == [sum(v < bound for v in values[a:b])]
        if b > a:
            k = data.draw(st.integers(0, b - a - 1))
            assert held.kth(*one, np.array([k])).tolist() == [sorted(values[a:b])[k]]
