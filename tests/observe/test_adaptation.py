"""The time of a run is split whole: starting, growing, shrinking, being down, and computing (004, acceptance 22)."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.observe.adaptation import TimeShares
from penstock.observe.record import BatchRecord
from tests.observe.conftest import batch


def test_shares_by_hand() -> None:
    """Widths 2 2 4 4 3 3, a second each; the first one at 4 works 0.5 s longer, the first at 3 0.1 s.

    ::

        second  0     1     2     3     4     5     6
        width   |--2--|--2--|--4--|--4--|--3--|--3--|
                 init        +0.5        +0.1
    """
    widths, extra = (2, 2, 4, 4, 3, 3), {2: 0.5, 4: 0.1}
    plain = [batch(n, width=width, visible=101.0 + n) for n, width in enumerate(widths)]
    run = [replace(r, parts={**r.parts, "run": 0.5 + extra.get(n, 0.0)}) for n, r in enumerate(plain)]
    shares = TimeShares.of([run])
    assert shares is not None
    assert shares.init == pytest.approx(1.0 / 6.0)
    assert shares.add == pytest.approx(0.5 / 6.0)
    assert shares.ban == pytest.approx(0.1 / 6.0)
    assert (shares.down, shares.compute) == (pytest.approx(0.0), pytest.approx(4.4 / 6.0))


def test_the_time_between_two_runs_is_down(job: list[BatchRecord]) -> None:
    first, second = job[:3], job[4:]
    shares = TimeShares.of([first, second])
    assert shares is not None
    assert shares.down == pytest.approx((110.0 - 102.8) / 11.8)


@given(
    st.lists(
        st.lists(st.tuples(st.floats(0.01, 5.0), st.floats(0.0, 5.0), st.integers(1, 4)), min_size=1, max_size=8),
        min_size=1,
        max_size=3,
    )
)
def test_the_shares_are_the_whole(drawn: list[list[tuple[float, float, int]]]) -> None:
    now, runs = 0.0, []
    for name, batches in enumerate(drawn):
        run = []
        for number, (work, wait, width) in enumerate(batches):
            parts = {"run": work, "wait": wait}
            run.append(batch(number, run=str(name), width=width, started=now, visible=now + work, parts=parts))
            now += work + wait
        runs.append(run)
    shares = TimeShares.of(runs)
    assert shares is not None
    assert sum(asdict(shares).values()) == pytest.approx(1.0)
    assert all(share >= 0.0 for share in asdict(shares).values())


def test_no_time_has_no_shares() -> None:
    assert TimeShares.of([]) is None and TimeShares.of([[BatchRecord(1)]]) is None
