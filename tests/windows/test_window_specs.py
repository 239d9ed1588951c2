"""What a window spec accepts, refuses and says of itself."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from penstock.errors import FlowError
from penstock.windows.count import Count
from penstock.windows.delta import Delta
from penstock.windows.kinds import WindowSpec, is_ordered, meta_types, needs_content, new_meta
from penstock.windows.time import Time


@pytest.mark.parametrize(
    ("make", "arguments", "rule"),
    [
        (Count, {"size": 0}, "size must be from 1 to"), (Count, {"size": -3}, "size must be from 1 to"),
        (Count, {"size": 2**31}, "size must be from 1 to"), (Count, {"size": True}, "size must be a whole number"),
        (Count, {"size": 2.0}, "size must be a whole number"), (Count, {"size": "10"}, "size must be a whole number"),
        (Count, {"size": None}, "size must be a whole number"),
        (Count, {"size": 3, "slide": 0}, "slide must be from 1"),
        (Count, {"size": 3, "slide": False}, "slide must be a whole number"),
        (Count, {"size": 3, "partial": 1}, "partial must be True or False"),
        (Count, {"size": 3, "lateness": "-1 s"}, "lateness must be zero or more"),
        (Count, {"size": 3, "lateness": "1 month"}, "lateness must have a fixed length"),
        (Time, {"size": "1 month"}, "size must have a fixed length"), (Time, {"size": 10}, "no unit"),
        (Time, {"size": "1 s", "every": 0}, "every must be from 1 to"),
        (Time, {"size": "1 s", "every": True}, "every must be a whole number"),
        (Time, {"size": "1 s", "every": 1.5}, "every must be a whole number"),
        (Time, {"size": "1 s", "every": 3, "slide": "1 s"}, "so does slide='1 s'"),
        (Time, {"size": "1 s", "every": 3, "origin": 0}, "origin=0 has no meaning"),
        (Time, {"size": "1 s", "every": 3, "origin": "first"}, "origin='first' has no meaning"),
        (Time, {"size": "1 s", "every": 3, "empty": True}, "there is no empty one"),
        (Time, {"size": "1 s", "empty": "yes"}, "empty must be True or False"),
        (Time, {"size": "1 s", "origin": "last"}, "origin must be a timestamp"),
        (Time, {"size": "1 s", "origin": "2024-01-01T00:00:00"}, "origin must name its zone"),
        (Delta, {"column": "a", "size": 0}, "size must be more than 0"),
        (Delta, {"column": "a", "size": -1.5}, "size must be more than 0"),
        (Delta, {"column": "a", "size": float("nan")}, "size must be more than 0"),
        (Delta, {"column": "a", "size": float("inf")}, "size must be more than 0"),
        (Delta, {"column": "a", "size": True}, "size must be a number"),
        (Delta, {"column": "a", "size": "5"}, "size must be a number"),
        (Delta, {"column": "a", "size": 5, "slide": 0}, "slide must be more than 0"),
        (Delta, {"column": "a", "size": 5, "slide": timedelta(1)}, "slide must be a number"),
        (Delta, {"column": "", "size": 5}, "column must be the name"),
        (Delta, {"column": 5, "size": 5}, "column must be"),
    ],
)  # fmt: skip
def test_refused(make: Any, arguments: dict[str, Any], rule: str) -> None:
    with pytest.raises(FlowError, match=rule) as error:
        make(**arguments)
    assert error.value.where == make.__name__
    assert error.value.remedy


ALL: list[tuple[WindowSpec, str, str]] = [
    (Count(10), "Count(10)", "CF"),
    (Count(10, 10), "Count(10)", "CF"),
    (Count(10, slide=3, partial=True, lateness="2 s"), "Count(10, slide 3, partial, lateness 2 s)", "CF"),
    (Count(3, slide=10), "Count(3, slide 10)", "CF"),
    (Time("10 s", "1 s"), "Time(10 s, slide 1 s)", "CF"),
    (Time("10 s", empty=True), "Time(10 s, empty)", "CF"),
    (Time("10 s", "1 s", "5 s", origin="first"), "Time(10 s, slide 1 s, lateness 5 s, origin first)", "FCF"),
    (Time("10 s", every=5, lateness="1 ms"), "Time(10 s, every 5, lateness 1 ms)", "FCU"),
    (Delta("a", 5), "Delta(a, 5)", "FCB"),
    (Delta("a", 5, slide=5), "Delta(a, 5, slide 5)", "FCB"),  # not tumbling: see windows/delta.py
    (Delta("a", 0.5, slide=2.0, lateness="1 h"), "Delta(a, 0.5, slide 2, lateness 1 h)", "FCB"),
]


@pytest.mark.parametrize(("spec", "text", "context"), ALL)
def test_what_a_spec_says_of_itself(spec: WindowSpec, text: str, context: str) -> None:
    assert spec.describe() == text
    assert spec.context == context
    assert pickle.loads(pickle.dumps(spec)) == spec  # it travels to workers
    with pytest.raises(AttributeError):
        spec.lateness_us = 5  # type: ignore[misc]


def test_equal_windows_are_equal_specs() -> None:
    assert Count(10) == Count(np.int64(10), slide=10)
    assert Delta("a", 2.0) == Delta("a", 2)
    assert Delta("a", 2) != Delta("a", 2, slide=2)
    assert Time("10 s", every=10) != Time("10 s")
    assert len({spec.describe() for spec, _, _ in ALL}) == len({spec for spec, _, _ in ALL})


def test_which_path() -> None:
    assert [is_ordered(spec) for spec in (Count(1), Delta("a", 1), Time("1 s", every=1), Time("1 s"))] == [
        True, True, True, False,
    ]  # fmt: skip
    plain, late = Time("1 s"), Time("1 s", lateness="1 s", origin=5)
    assert not needs_content(plain) and not needs_content(late)
    assert all(needs_content(s) for s in (Count(1), Delta("a", 1), Time("1 s", origin="first"), Time("1 s", every=1)))


def test_meta_of_new_keys() -> None:
    for spec, _, _ in ALL:
        for floating in (False, True):
            kinds, meta = meta_types(spec, floating), new_meta(spec, 3, floating)
            assert {name: array.dtype.type for name, array in meta.items()} == kinds
            assert all((array == 0).all() and len(array) == 3 for array in meta.values())
    assert meta_types(Delta("a", 1), floating=True)["marker"] is np.float64
    assert meta_types(Delta("a", 1), floating=False)["marker"] is np.int64
