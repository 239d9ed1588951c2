"""What explain() draws, and what a checkpoint takes for the identity of a flow, word for word."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock.durations import microseconds
from penstock.windows.arguments import duration_text
from penstock.windows.time import Time


def f1(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


f2 = f3 = f1


def total(batch: pa.RecordBatch, state: ps.KeyedState) -> tuple[pa.RecordBatch, ps.KeyedState]:
    return batch, state


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    rate = spark.readStream.format("rate").load()
    return rate.selectExpr("'a' as k", "value as i", "1.5d as v", "timestamp as ts", "timestamp as `came in`")


def build(frame: DataFrame, **changed: Any) -> ps.Flow:
    """A flow with one of everything; `changed` overrides what a restart may or may not change."""
    option = {
        "name": "trading", "time": "ts", "arrival": "came in", "score": {"replicas": ps.elastic(1, 8), "ordered": True},
        "schema": "k string, i bigint, v double, ts timestamp", "key": "k", "state": "total double, n bigint",
        "spec": ps.Time("10 s", slide="2500 ms", lateness="1 minute"),
        "aggregates": {"total": ps.sum("v"), "n": ps.count()},
        "folder": "out", "frame": frame, "sums": "sums", "on_error": "stop", "parts": 2, "sinks": True,
    } | changed  # fmt: skip
    flow = ps.Flow(option["name"])
    quotes = flow.read(option["frame"], time=option["time"], arrival=option["arrival"], name="quotes")
    slim = quotes.sql(lambda d: d.drop("came in").where("v > 0"), name="slim")
    clean = slim.map(f1, name="clean", on_error=option["on_error"])
    score = clean.map(f2, option["schema"], name="score", **option["score"])
    *parts, rest = score.split(*[f1] * option["parts"], rest=True, name="parts")
    both = parts[0].union(rest, name="both")
    sums = both.stateful(total, state_schema=option["state"], key=option["key"], name=option["sums"])
    bars = parts[1].window(option["spec"], key=option["key"], name="bars").aggregate(**option["aggregates"])
    few = parts[0].flat_map(f1, name="few", replicas=2, partition="key", key="k", chunk=10, scheduling="on_demand")
    if option["sinks"]:
        bars.write("parquet", path=f"{option['folder']}/bars", name="files")
        sums.write("memory", name="table")
        few.write("console")
    return flow


TEXT = """\
flow trading
  quotes [read, stream, time ts]
      : k string, i bigint, v double, ts timestamp, `came in` timestamp
    slim [sql] <- quotes
        : k string, i bigint, v double, ts timestamp
      clean [map, fused] <- slim
          : k string, i bigint, v double, ts timestamp
        score [map, 1..8 replicas, round_robin, ordered, chunks of 1024] <- clean
            : k string, i bigint, v double, ts timestamp
          parts [split] <- score
              : 0: k string, i bigint, v double, ts timestamp
              : 1: k string, i bigint, v double, ts timestamp
              : rest: k string, i bigint, v double, ts timestamp
            both [union] <- parts.0, parts.rest
                : k string, i bigint, v double, ts timestamp
              sums [stateful, 1..64 replicas, key k, state (total double, n bigint)] <- both
                  : k string, i bigint, v double, ts timestamp
            bars [window, 1..64 replicas, key k, pane farming, Time(10 s, slide 2500 ms, lateness 1 min) on ts, \
total = sum(v), n = count()] <- parts.1
                : k string, window struct<start:timestamp,end:timestamp>, total double, n bigint
            few [flatmap, 2 replicas, on_demand, unordered, chunks of 10, partition key k] <- parts.0
                : k string, i bigint, v double, ts timestamp
              files [sink parquet out/bars] <- bars
                table [sink memory] <- sums
              to_console [sink console] <- few
farms: farm(A(quotes, slim, clean), B(score), C(parts, both)) | farm(A(parts, both), B(sums), C(table)) \
| farm(A(parts), B(bars), C(files)) | farm(A(parts), B(few), C(to_console))"""

MERMAID = """\
graph LR
  quotes(["quotes<br/>read, stream, time ts"])
  slim["slim<br/>sql"]
  clean["clean<br/>map, fused"]
  score["score<br/>map, 1..8 replicas, round_robin, ordered, chunks of 1024"]
  parts["parts<br/>split"]
  both["both<br/>union"]
  sums["sums<br/>stateful, 1..64 replicas, key k, state (total double, n bigint)"]
  bars["bars<br/>window, 1..64 replicas, key k, pane farming, Time(10 s, slide 2500 ms, lateness 1 min) on ts, \
total = sum(v), n = count()"]
  few["few<br/>flatmap, 2 replicas, on_demand, unordered, chunks of 10, partition key k"]
  files[("files<br/>parquet")]
  table[("table<br/>memory")]
  to_console[("to_console<br/>console")]
  quotes --> slim
  slim --> clean
  clean --> score
  score --> parts
  parts -->|0| both
  parts -->|rest| both
  both --> sums
  parts -->|1| bars
  parts -->|0| few
  bars --> files
  sums --> table
  few --> to_console"""

IDENTITY = [
    "flow trading",
    "read quotes, time ts: k string, i bigint, v double, ts timestamp, `came in` timestamp",
    "window bars <- parts.1, key k, time ts, Time(10 s, slide 2500 ms, lateness 1 min), "
    "total = sum(v double), n = count(): "
    "k string, window struct<start:timestamp,end:timestamp>, total double, n bigint",
    "union both <- parts.0 + parts.rest: k string, i bigint, v double, ts timestamp",
    "map clean <- slim: k string, i bigint, v double, ts timestamp",
    "flatmap few <- parts.0: k string, i bigint, v double, ts timestamp",
    "split parts <- score, outputs 0 1 rest: k string, i bigint, v double, ts timestamp",
    "map score <- clean: k string, i bigint, v double, ts timestamp",
    "sql slim <- quotes: k string, i bigint, v double, ts timestamp",
    "stateful sums <- both, key k, state (total double, n bigint): k string, i bigint, v double, ts timestamp",
]


def test_text(frame: DataFrame) -> None:
    assert build(frame).explain().splitlines() == TEXT.splitlines()


def test_mermaid(frame: DataFrame) -> None:
    assert build(frame).explain("mermaid").splitlines() == MERMAID.splitlines()


def test_farms(frame: DataFrame) -> None:
    assert build(frame).explain("farm") == TEXT.rpartition("farms: ")[2]


def test_two_builds_of_one_flow_are_explained_alike(frame: DataFrame) -> None:
    for format in ("text", "mermaid", "farm"):
        assert build(frame).explain(format) == build(frame).explain(format)
    assert not re.search(r" at 0x|_us=|#\d", build(frame).explain())  # no addresses, raw figures or Spark ids


def test_mermaid_does_not_take_a_name_for_its_own_word(frame: DataFrame) -> None:
    flow = ps.Flow("f")
    flow.read(frame, name="graph").map(f1, name="end").write("memory", name="class")
    assert flow.explain("mermaid").splitlines() == [
        "graph LR",
        '  graph-(["graph<br/>read, stream"])',
        '  end-["end<br/>map, fused"]',
        '  class-[("class<br/>memory")]',
        "  graph- --> end-",
        "  end- --> class-",
    ]


FARMS: list[tuple[Callable[[ps.Stream], Any], str]] = [
    # 003 F11, rule 1: ToStream{f1; Stage+Replicate(N){f2}}
    (lambda s: s.map(f2, name="f2", replicas=4), "farm(A(f1), B(f2))"),
    # 003 F12, rule 2: ToStream{f1; Stage+Replicate(N){f2}; Stage{f3}}
    (lambda s: s.map(f2, name="f2", replicas=4).map(f3, name="f3"), "farm(A(f1), B(f2), C(f3))"),
    (lambda s: s.map(f2, name="f2", replicas=4).write("memory", name="f3"), "farm(A(f1), B(f2), C(f3))"),
    # each slot holds a sequence
    (
        lambda s: s.map(f1, name="a").map(f2, name="f2", replicas=4).map(f3, name="b").map(f3, name="c"),
        "farm(A(f1, a), B(f2), C(b, c))",
    ),
    # one farm behind another has no emitter of its own
    (
        lambda s: s.map(f2, name="f2", replicas=4).map(f3, name="f3", replicas=2),
        "farm(A(f1), B(f2)) | farm(B(f3))",
    ),
    (lambda s: s.map(f2, name="f2"), "none"),
    # the emitter of a farm behind a union is all that feeds the union
    (
        lambda s: s.map(f1, name="a").union(s.map(f1, name="b"), name="u").map(f2, name="f2", replicas=2),
        "farm(A(f1, a, b, u), B(f2))",
    ),
    # the collector is all that reads a farm
    (
        lambda s: [x.map(f3, name=n) for x in [s.map(f2, name="f2", replicas=2)] for n in ("a", "b")],
        "farm(A(f1), B(f2), C(a, b))",
    ),
]


@pytest.mark.parametrize(("steps", "expected"), FARMS, ids=[expected for _, expected in FARMS])
def test_farm_notation_of_003(steps: Callable[[ps.Stream], Any], expected: str, frame: DataFrame) -> None:
    flow = ps.Flow("f")
    steps(flow.read(frame, name="f1"))
    assert flow.explain("farm") == expected


# -- durations in words ------------------------------------------------------------------------------------------------


@given(
    us=st.one_of(
        st.integers(1, 10**13),
        st.builds(
            lambda n, u: n * u,
            st.integers(1, 99),
            st.sampled_from([1000, 10**6, 60 * 10**6, 3600 * 10**6, 86400 * 10**6]),
        ),
    )
)
@example(us=1)
@example(us=60 * 10**6)
def test_durations_read_back_as_what_they_were(us: int) -> None:
    text = duration_text(us)
    assert microseconds(text) == us
    number, unit = text.split()
    larger = {"us": 1000, "ms": 1000, "s": 60, "min": 60, "h": 24}
    assert unit == "d" or int(number) % larger[unit]  # the largest unit without a fraction


def test_windows_in_words() -> None:
    assert Time("10 s").describe() == "Time(10 s)"
    assert Time("10 s", slide="100 ms").describe() == "Time(10 s, slide 100 ms)"
    assert Time("1 day", lateness="36 hours").describe() == "Time(1 d, lateness 36 h)"
    assert Time("1 h", origin=-1).describe() == "Time(1 h, origin 1969-12-31T23:59:59.999999+00:00)"
    assert Time("1 h", origin=2**61).describe() == f"Time(1 h, origin {2**61} us)"
    one, two = Time("1 h", origin=1), Time("1 h", origin=1 + 3600 * 10**6)
    assert one.describe() != two.describe()  # the same windows, but panes are counted from the origin


# -- identity ----------------------------------------------------------------------------------------------------------


def test_identity(frame: DataFrame) -> None:
    assert build(frame).identity() == IDENTITY


MAY_CHANGE: dict[str, dict[str, Any]] = {
    "width": {"score": {"replicas": 3, "ordered": True}},
    "no farm": {"score": {}},
    "order of output": {"score": {"replicas": ps.elastic(1, 8)}},
    "scheduling": {"score": {"replicas": ps.elastic(1, 8), "scheduling": "on_demand"}},
    "chunk": {"score": {"replicas": 2, "chunk": 7}},
    "partition": {"score": {"replicas": 2, "partition": "key", "key": "k"}},
    "setup": {"score": {"replicas": ps.elastic(1, 8), "ordered": True, "setup": dict, "teardown": print}},
    "what happens to bad rows": {"on_error": "skip"},
    "dead letters": {"on_error": "dead_letter"},
    "arrival": {"arrival": None},
    "path": {"folder": "elsewhere"},
    "sinks": {"sinks": False},
}

MUST_NOT_CHANGE: dict[str, tuple[dict[str, Any], list[str]]] = {
    "name": ({"name": "trade"}, ["flow trade"]),
    "key": ({"key": ("k", "i")}, ["window bars <- parts.1, key k i, ", "stateful sums <- both, key k i, "]),
    "state": ({"state": "total double"}, ["stateful sums <- both, key k, state (total double): "]),
    "state type": ({"state": "total double, n int"}, ["stateful sums <- both, key k, state (total double, n int): "]),
    "window size": ({"spec": ps.Time("11 s")}, ["window bars <- parts.1, key k, time ts, Time(11 s), "]),
    "aggregate": ({"aggregates": {"n": ps.count("v")}}, ["window bars <- parts.1, key k, time ts, Time(10 s, sl"]),
    "operator's name": ({"sums": "totals"}, ["stateful totals <- both, key k, "]),
    "outputs": ({"parts": 3}, ["split parts <- score, outputs 0 1 2 rest: "]),
}  # fmt: skip


UNSEEN = ("setup", "arrival")  # explain() shows neither


@pytest.mark.parametrize("what", MAY_CHANGE)
def test_what_a_restart_may_change(what: str, frame: DataFrame) -> None:
    flow = build(frame, **MAY_CHANGE[what])
    assert (flow.explain() == TEXT) == (what in UNSEEN)
    assert flow.identity() == IDENTITY


@pytest.mark.parametrize("what", MUST_NOT_CHANGE)
def test_what_a_restart_must_not_change(what: str, frame: DataFrame) -> None:
    change, starts = MUST_NOT_CHANGE[what]
    new = [line for line in build(frame, **change).identity() if line not in IDENTITY]
    assert [line[: len(start)] for line, start in zip(new, starts, strict=True)] == starts


def test_the_time_column_must_not_change(frame: DataFrame) -> None:
    lines = []
    for time in ("ts", "came in", None):
        flow = ps.Flow("f")
        flow.read(frame, time=time, name="quotes")
        lines.append(flow.identity()[1].partition(":")[0])
    assert lines == ["read quotes, time ts", "read quotes, time came in", "read quotes"]


def test_the_columns_of_sources_and_operators_must_not_change(frame: DataFrame) -> None:
    wider = build(frame.selectExpr("*", "1 as more"))
    assert "more int" in wider.identity()[1]
    retyped = build(frame.selectExpr("k", "i", "cast(v as float) as v", "ts", "`came in`"), schema=None)
    changed = [line for line in retyped.identity() if line not in IDENTITY]
    assert [line.split()[1].rstrip(",:") for line in changed] == [
        "quotes", "both", "clean", "few", "parts", "score", "slim", "sums",
    ]  # fmt: skip
    numbers = build(frame.selectExpr("k", "i", "cast(v as long) as v", "ts", "`came in`"), schema=None)
    assert any("total = sum(v long)" in line for line in numbers.identity())


def test_sources_go_by_position_and_other_operators_by_name(frame: DataFrame) -> None:
    def flow(sources: str, steps: str) -> list[str]:
        flow = ps.Flow("f")
        streams = {name: flow.read(frame, name=name) for name in sources}
        for name in steps:
            streams["a"].map(f1, name=name)
        return flow.identity()

    assert flow("ab", "xy") == flow("ab", "yx")
    assert flow("ab", "xy") != flow("ba", "xy")


def test_whether_a_column_may_be_null_is_no_part_of_the_identity(spark: SparkSession) -> None:
    never = spark.range(1)
    maybe = never.selectExpr("if(id > 5, null, id) as id")
    assert (never.schema["id"].nullable, maybe.schema["id"].nullable) == (False, True)
    one, two = ps.Flow("f"), ps.Flow("f")
    one.read(never)
    two.read(maybe)
    assert one.identity() == two.identity() == ["flow f", "read read: id bigint"]
