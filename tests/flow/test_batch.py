"""Every operator on batch DataFrames equals an obvious sequential oracle.

A Spark job costs a second and a hypothesis example microseconds, so many random cases are drawn first, packed into one
DataFrame by a case number, and run at once; functions treat rows (or cases) independently, so the packing cannot help.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from itertools import pairwise
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock as ps
from tests.flow.functions import (
    above_minus_5,
    as_key,
    calls,
    double,
    key_totals,
    members,
    nothing,
    pos_and_n,
    positive,
    repeat,
    use,
    without_key,
)

T = TypeVar("T")
Row = dict[str, Any]
SCHEMA = pa.schema(
    [("case", pa.int64()), ("pos", pa.int64()), ("k", pa.string()), ("n", pa.int64()), ("x", pa.float64())]
)


def draw_many(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """Return `count` examples of a strategy, the same in every run."""
    found: list[T] = []

    @settings(
        max_examples=count, phases=[Phase.generate], database=None, derandomize=True, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def take(value: T) -> None:
        found.append(value)

    take()
    return found


def plain(row: Any) -> tuple[Any, ...]:
    """Return a row as something to compare by: NaN equals NaN, -0.0 is not 0.0."""
    values = row.values() if isinstance(row, dict) else row
    return tuple(repr(v) if isinstance(v, float) else v for v in values)


def collect(streams: dict[str, ps.Stream]) -> dict[str, list[Row]]:
    """Run several streams of one schema as one Spark job, and return the rows of each."""
    frames = [stream.to_df().select(F.lit(name).alias("_what"), "*") for name, stream in streams.items()]
    found: dict[str, list[Row]] = {name: [] for name in streams}
    for row in reduce(DataFrame.union, frames).toArrow().to_pylist():
        found[row.pop("_what")].append(row)
    return found


@pytest.fixture(scope="module")
def cases() -> list[Row]:
    keys = st.one_of(st.none(), st.sampled_from(["a", "b", "", "ß"]))
    numbers = st.one_of(st.none(), st.integers(-20, 20))
    floats = st.one_of(st.none(), st.sampled_from([0.0, -0.0, math.nan, math.inf, -1.5, 2.25]))
    drawn = draw_many(st.lists(st.tuples(keys, numbers, floats), max_size=12), 60)
    rows = [(case, k, n, x) for case, content in enumerate(drawn) for k, n, x in content]
    return [{"case": c, "pos": pos, "k": k, "n": n, "x": x} for pos, (c, k, n, x) in enumerate(rows)]


@pytest.fixture(scope="module")
def frame(spark: SparkSession, cases: list[Row]) -> DataFrame:
    frame = spark.createDataFrame(pa.Table.from_pylist(cases, SCHEMA)).coalesce(2)
    assert frame.rdd.getNumPartitions() == 2
    return frame


# -- operators, and what each does to a list of rows -------------------------------------------------------------------


def doubled(rows: list[Row]) -> list[Row]:
    return [{**row, "n": None if row["n"] is None else 2 * row["n"]} for row in rows]


def totalled(rows: list[Row]) -> list[Row]:
    totals: Counter[tuple[Any, Any]] = Counter()
    for row in rows:
        totals[row["case"], row["k"]] += row["n"] or 0
    return [{**row, "n": totals[row["case"], row["k"]]} for row in rows]


def is_positive(row: Row) -> bool:
    return row["n"] is not None and row["n"] > 0


def big(row: Row) -> bool:
    return row["x"] is not None and (math.isnan(row["x"]) or row["x"] > 0)  # to Spark, NaN is above everything


def split_and_join(s: ps.Stream) -> ps.Stream:
    first, _, rest = s.split(positive, above_minus_5, rest=True)
    return first.map(double).union(rest)


def split_oracle(rows: list[Row]) -> list[Row]:
    return doubled([r for r in rows if is_positive(r)]) + [r for r in rows if r["n"] is None or r["n"] <= -5]


Step = tuple[Callable[[ps.Stream], ps.Stream], Callable[[list[Row]], list[Row]]]

STEPS: dict[str, Step] = {
    "map": (lambda s: s.map(double), doubled),
    "map that drops": (lambda s: s.map(without_key), lambda rows: [r for r in rows if r["k"] is not None]),
    "map, other columns": (
        lambda s: s.map(pos_and_n, "n bigint, pos bigint").sql(
            lambda d: d.selectExpr("0L as case", "pos", "'z' as k", "n", "double(pos) as x")
        ),
        lambda rows: [{"case": 0, "pos": r["pos"], "k": "z", "n": r["n"], "x": float(r["pos"])} for r in rows],
    ),
    "flat_map": (lambda s: s.flat_map(repeat), lambda rows: rows * 2),
    "flat_map of nothing": (lambda s: s.flat_map(nothing), lambda rows: []),
    "filter": (lambda s: s.filter(positive), lambda rows: [r for r in rows if is_positive(r)]),
    "filter in SQL": (lambda s: s.filter("x > 0"), lambda rows: [r for r in rows if big(r)]),
    "sql": (
        lambda s: s.sql(lambda d: d.withColumn("n", F.col("n") + 1).where("k <> ''")),
        lambda rows: [{**r, "n": None if r["n"] is None else r["n"] + 1} for r in rows if r["k"]],
    ),
    "split": (
        lambda s: s.split(positive, above_minus_5)[1],
        lambda rows: [r for r in rows if r["n"] is not None and -5 < r["n"] <= 0],
    ),
    "split, rest": (
        lambda s: s.split(positive, rest=True)[1],
        lambda rows: [r for r in rows if not is_positive(r)],
    ),
    "split and union": (split_and_join, split_oracle),
    "union with itself": (lambda s: s.union(s, s), lambda rows: rows * 3),
    "union of two": (lambda s: s.map(double).union(s.filter(positive)), lambda rows: doubled(rows) + [
        r for r in rows if is_positive(r)
    ]),
    "farm": (lambda s: s.map(double, replicas=3, chunk=2, ordered=True), doubled),
    "farm on demand": (
        lambda s: s.flat_map(repeat, replicas=2, chunk=3, scheduling="on_demand"), lambda rows: rows * 2,
    ),
    "farm by key": (lambda s: s.map(double, replicas=2, partition="key", key=("k", "n")), doubled),
    "farm, broadcast": (lambda s: s.map(double, replicas=2, partition="broadcast"), lambda rows: doubled(rows) * 2),
    "stateful": (
        lambda s: s.stateful(key_totals, state_schema="total double", key=("case", "k"), replicas=3), totalled,
    ),
}  # fmt: skip

# A DataFrame that is read twice is computed twice: one union, farm or state a chain, or the job grows beyond bounds.
LIGHT = [name for name in STEPS if not any(word in name for word in ("farm", "stateful", "union", "of nothing"))]
CHAINS = st.tuples(
    st.lists(st.sampled_from(LIGHT), min_size=1, max_size=2),
    st.sampled_from(["farm", "stateful", "farm by key", "split and union"]),
    st.lists(st.sampled_from(LIGHT), min_size=1, max_size=2),
).map(lambda parts: (*parts[0], parts[1], *parts[2]))


def test_each_operator_equals_its_oracle(frame: DataFrame, cases: list[Row]) -> None:
    read = ps.Flow("f").read(frame)
    streams = {name: build(read) for name, (build, _) in STEPS.items()}
    found = collect(streams)
    for name, (_, oracle) in STEPS.items():
        assert Counter(map(plain, found[name])) == Counter(map(plain, oracle(cases))), name


def test_chains_of_operators_equal_the_chain_of_their_oracles(frame: DataFrame, cases: list[Row]) -> None:
    chains = sorted(set(draw_many(CHAINS, 4)))
    read = ps.Flow("f").read(frame)
    streams, expected = {}, {}
    for chain in chains:
        stream, rows = read, cases
        for step in chain:
            build, oracle = STEPS[step]
            stream, rows = build(stream), oracle(rows)
        streams[" > ".join(chain)], expected[" > ".join(chain)] = stream, rows
    found = collect(streams)
    for name, rows in expected.items():
        assert Counter(map(plain, found[name])) == Counter(map(plain, rows)), name


# -- farms -------------------------------------------------------------------------------------------------------------

ROWS, PARTITIONS, CHUNK = 100, 3, 7
CALL = "replica bigint, width bigint, operator string, ids array<bigint>"


@pytest.fixture(scope="module")
def farms(spark: SparkSession) -> dict[str, list[Row]]:
    read = ps.Flow("f").read(spark.range(0, ROWS, 1, PARTITIONS))
    streams = {
        "round robin": read.map(calls, CALL, name="one", replicas=2, chunk=CHUNK),
        "on demand": read.map(calls, CALL, name="two", replicas=2, chunk=CHUNK, scheduling="on_demand"),
        "key": read.map(calls, CALL, name="three", replicas=4, chunk=CHUNK, partition="key", key="id"),
        "broadcast": read.map(calls, CALL, name="four", replicas=3, chunk=CHUNK, partition="broadcast"),
        "rows": read.map(calls, CALL, name="five", replicas=2, chunk=1, ordered=True),
    }
    return {name: stream.to_df(spark).toArrow().to_pylist() for name, stream in streams.items()}


def chunks(size: int) -> list[list[int]]:
    """The chunks there must be: consecutive rows of one source partition, all full but its last."""
    edges = [ROWS * p // PARTITIONS for p in range(PARTITIONS + 1)]
    return [
        list(range(start, min(start + size, end)))
        for begin, end in pairwise(edges)
        for start in range(begin, end, size)
    ]


@pytest.mark.parametrize(("farm", "size"), [("round robin", CHUNK), ("on demand", CHUNK), ("rows", 1)])
def test_a_farm_is_called_once_per_chunk(farm: str, size: int, farms: dict[str, list[Row]]) -> None:
    assert sorted(call["ids"] for call in farms[farm]) == chunks(size)


def test_chunks_go_round_robin_to_the_replicas(farms: dict[str, list[Row]]) -> None:
    assert {(call["replica"], call["width"], call["operator"]) for call in farms["round robin"]} == {
        (0, 2, "one"),
        (1, 2, "one"),
    }
    of = {call["ids"][0]: call["replica"] for call in farms["round robin"]}
    for partition in range(PARTITIONS):  # neighbours in one source partition go to different replicas
        first = ROWS * partition // PARTITIONS
        targets = [of[ids[0]] for ids in chunks(CHUNK) if first <= ids[0] < ROWS * (partition + 1) // PARTITIONS]
        assert all(a != b for a, b in pairwise(targets))


def test_by_key_a_key_goes_to_one_replica_and_chunks_are_not_mixed(farms: dict[str, list[Row]]) -> None:
    found = farms["key"]
    assert sorted(i for call in found for i in call["ids"]) == list(range(ROWS))
    assert {call["replica"] for call in found} == {0, 1, 2, 3}
    chunk_of = {i: number for number, ids in enumerate(chunks(CHUNK)) for i in ids}
    for call in found:
        assert call["ids"] == sorted(call["ids"])
        assert len({chunk_of[i] for i in call["ids"]}) == 1
    assert len({(call["replica"], chunk_of[call["ids"][0]]) for call in found}) == len(found)  # one call per chunk


def test_broadcast_shows_every_row_to_every_replica(farms: dict[str, list[Row]]) -> None:
    seen: dict[int, list[list[int]]] = {}
    for call in farms["broadcast"]:
        assert (call["width"], call["operator"]) == (3, "four")
        seen.setdefault(call["replica"], []).append(call["ids"])
    assert {replica: sorted(ids) for replica, ids in seen.items()} == dict.fromkeys(range(3), chunks(CHUNK))


def test_outside_a_flow_there_is_no_replica() -> None:
    assert ps.replica() == ps.Replica("", 0, 1, -1)


# -- setup -------------------------------------------------------------------------------------------------------------


def test_what_setup_makes_is_passed_to_the_function_of_its_own_flow(spark: SparkSession) -> None:
    def setup(value: int) -> Callable[[], dict[str, int]]:
        return lambda: {"value": value}

    # two flows, one after the other in the same worker processes, with operators of the same name
    for value in (7, 8, 9):
        read = ps.Flow("f").read(spark.range(0, 4, 1, 4))
        fused = read.map(use, setup=setup(value), name="use")
        farm = read.map(use, setup=setup(10 * value), teardown=print, replicas=2, chunk=1, name="farm")
        rows = [row["id"] for row in fused.union(farm).to_df(spark).collect()]
        assert sorted(rows) == [value] * 4 + [10 * value] * 4


# -- keyed state -------------------------------------------------------------------------------------------------------

NAN2 = float(np.array([0x7FF8000000000001], dtype=np.uint64).view(np.float64)[0])  # another NaN
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["a", "b", "", "ß", None]),
    "int": (pa.int32(), [0, 1, -1, 2**31 - 1, None]),
    "long": (pa.int64(), [0, -(2**63), 2**63 - 1, None]),
    "bool": (pa.bool_(), [True, False, None]),
    "day": (pa.date32(), [date(1969, 12, 31), date(2024, 2, 29), None]),
    "moment": (
        pa.timestamp("us", "UTC"),
        [datetime(1969, 12, 31, 23, tzinfo=UTC), datetime(2024, 2, 29, tzinfo=UTC), None],
    ),
    "money": (pa.decimal128(10, 2), [Decimal("0.10"), Decimal("-5.00"), None]),
    "bytes": (pa.binary(), [b"", b"\x00", None]),
    "double": (pa.float64(), [0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, None]),
    "nans": (pa.float64(), [1.5, math.nan, NAN2, None]),
    "zeros": (pa.float64(), [0.0, -0.0, 1.5, None]),
    "float": (pa.float32(), [0.0, 0.5, math.nan, None]),
    "float_zeros": (pa.float32(), [0.0, -0.0, None]),
}
MEMBERS = "pos bigint, count bigint, least bigint, number bigint, good boolean"


GROUPINGS: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in KEYS},
    "two": ("text", "int"),
    "three": ("bool", "double", "day"),
    "zeros among others": ("text", "zeros", "bool"),
    "six": ("text", "int", "long", "bool", "day", "double"),
}


@pytest.fixture(scope="module")
def keyed_rows() -> pa.Table:
    random = np.random.default_rng(5)
    rows = 240
    columns: dict[str, pa.Array] = {"pos": pa.array(range(rows))}
    for name, (kind, values) in KEYS.items():
        columns[name] = pa.array([values[i] for i in random.integers(0, len(values), rows)], kind)
    return pa.table(columns)


@pytest.fixture(scope="module")
def grouped(spark: SparkSession, keyed_rows: pa.Table) -> dict[str, list[Row]]:
    read = ps.Flow("f").read(spark.createDataFrame(keyed_rows).coalesce(2))
    return collect(
        {
            name: read.stateful(members, MEMBERS, "n bigint", key=key, replicas=2, name=name.replace(" ", "_"))
            for name, key in GROUPINGS.items()
        }
    )


@pytest.mark.parametrize("grouping", GROUPINGS)
def test_state_is_kept_per_key(grouping: str, grouped: dict[str, list[Row]], keyed_rows: pa.Table) -> None:
    groups: dict[tuple[Any, ...], list[int]] = {}
    for row in keyed_rows.to_pylist():
        groups.setdefault(tuple(as_key(row[name]) for name in GROUPINGS[grouping]), []).append(row["pos"])
    expected = [
        {"pos": pos, "count": len(rows), "least": rows[0], "number": number, "good": True}
        for rows in groups.values()
        for number, pos in enumerate(rows)  # the rows of a key come in their order
    ]
    assert len(groups) > 1
    assert sorted(grouped[grouping], key=itemgetter("pos")) == sorted(expected, key=itemgetter("pos"))


def test_spark_groups_the_same_way(spark: SparkSession, keyed_rows: pa.Table) -> None:
    """The oracle's idea of a key is Spark's: checked on the floats, where it is not obvious."""
    frame = spark.createDataFrame(keyed_rows)
    found = frame.groupBy("zeros", "float_zeros", "nans").agg(F.min("pos"), F.count("*")).collect()
    groups: dict[Any, list[int]] = {}
    for row in keyed_rows.to_pylist():
        key = tuple(as_key(row[name]) for name in ("zeros", "float_zeros", "nans"))
        groups.setdefault(key, []).append(row["pos"])
    assert sorted((row[3], row[4]) for row in found) == sorted((rows[0], len(rows)) for rows in groups.values())
