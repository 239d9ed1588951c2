"""Wrong use fails when the flow is built (or started), naming the operator, the rule and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructType

import penstock as ps

SCHEMA = (
    "k string, i bigint, v double, ts timestamp, "
    "arr array<int>, m map<string,int>, s struct<a:int>, var variant, ntz timestamp_ntz"
)


@dataclass
class Bench:
    """What a wrong flow is built from."""

    spark: SparkSession
    batch: DataFrame
    stream: DataFrame
    folder: Path

    def flow(self) -> ps.Flow:
        return ps.Flow("f")

    def read(self, **options: Any) -> ps.Stream:
        return self.flow().read(self.batch, name="quotes", **options)

    def narrow(self) -> ps.Stream:
        return self.flow().read(self.batch.select("k", "i", "v"), name="quotes")

    def streaming(self) -> ps.Stream:
        return self.flow().read(self.stream, name="rate")


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    return spark.createDataFrame([], SCHEMA), spark.readStream.format("rate").load()


@pytest.fixture
def bench(spark: SparkSession, frames: tuple[DataFrame, DataFrame], tmp_path: Path) -> Bench:
    return Bench(spark, *frames, tmp_path)


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def keep(batch: pa.RecordBatch, state: ps.KeyedState) -> tuple[pa.RecordBatch, ps.KeyedState]:
    return batch, state


@dataclass(frozen=True)
class Wrong:
    """A wrong use and the three parts of the message it must raise: where exactly, rule and remedy in part."""

    what: str
    build: Callable[[Bench], Any]
    where: str
    rule: str
    remedy: str

    def __str__(self) -> str:
        return self.what


def check(wrong: Wrong, bench: Bench) -> None:
    with pytest.raises(ps.FlowError) as caught:
        wrong.build(bench)
    error = caught.value
    assert error.where == wrong.where
    assert wrong.rule in error.rule
    assert wrong.remedy in error.remedy
    assert str(error) == f"{error.where}: {error.rule}. Remedy: {error.remedy}."


def sql(what: str, fn: Callable[[DataFrame], Any], rule: str, remedy: str = "before read()") -> Wrong:
    return Wrong(what, lambda b: b.read().sql(fn, name="step"), "sql 'step'", rule, remedy)


NOT_STATELESS = "a sql step is stateless and runs in the JVM, but it contains "


def ranked(frame: DataFrame) -> DataFrame:
    return frame.withColumn("r", F.row_number().over(Window.partitionBy("k").orderBy("i")))


def with_subquery(frame: DataFrame) -> DataFrame:
    frame.createOrReplaceTempView("penstock_refusals")
    return frame.sparkSession.sql("select k from penstock_refusals where i in (select i from penstock_refusals)")


SQL = [
    sql("aggregate", lambda d: d.groupBy("k").count(), NOT_STATELESS + "an aggregate"),
    sql("global aggregate", lambda d: d.select(F.sum("i")), NOT_STATELESS + "an aggregate"),
    sql("pivot", lambda d: d.groupBy("k").pivot("i", [1]).count(), NOT_STATELESS + "an aggregate"),
    sql("sort", lambda d: d.orderBy("i"), NOT_STATELESS + "a sort"),
    sql("sort within partitions", lambda d: d.sortWithinPartitions("i"), NOT_STATELESS + "a sort"),
    sql("limit", lambda d: d.limit(1), NOT_STATELESS + "a limit"),
    sql("offset", lambda d: d.offset(1), NOT_STATELESS + "an offset"),
    sql("distinct", lambda d: d.select("k").distinct(), NOT_STATELESS + "a distinct"),
    sql("dropDuplicates", lambda d: d.dropDuplicates(["k"]), NOT_STATELESS + "a distinct"),
    sql("join", lambda d: d.join(d.sparkSession.range(3), F.col("id") == F.col("i")), NOT_STATELESS + "a join"),
    sql("self-join", lambda d: d.select("i").join(d.select("i"), "i"), NOT_STATELESS + "a join"),
    sql("window function", ranked, NOT_STATELESS + "a window function"),
    sql("mapInArrow", lambda d: d.mapInArrow(lambda b: b, d.schema), NOT_STATELESS + "a Python function", "use map()"),
    sql(
        "mapInPandas", lambda d: d.mapInPandas(lambda b: b, d.schema), NOT_STATELESS + "a Python function", "use map()"
    ),
    sql("Python UDF", lambda d: d.select(F.udf(str, "string")("i")), NOT_STATELESS + "a Python function", "use map()"),
    sql(
        "applyInPandas",
        lambda d: d.groupBy("k").applyInPandas(lambda rows: rows, d.schema),
        NOT_STATELESS + "a grouped Python function",
    ),
    sql("union", lambda d: d.union(d), NOT_STATELESS + "a union", "union()"),
    sql("except", lambda d: d.select("i").exceptAll(d.select("i")), NOT_STATELESS + "an except"),
    sql("sample", lambda d: d.sample(0.5), NOT_STATELESS + "a sample"),
    sql("repartition", lambda d: d.repartition(3), NOT_STATELESS + "a repartition"),
    sql("coalesce", lambda d: d.coalesce(1), NOT_STATELESS + "a repartition"),
    sql("observe", lambda d: d.observe("o", F.count("*").alias("n")), NOT_STATELESS + "an observe"),
    sql("subquery", with_subquery, NOT_STATELESS + "a subquery"),
    sql(
        "another DataFrame",
        lambda d: d.sparkSession.range(3),
        "it reads another DataFrame",
        "join tables before read()",
    ),
    sql("nothing", lambda d: None, "fn must return a DataFrame, got NoneType", "return the DataFrame"),
    sql(
        "unknown column", lambda d: d.where("nope > 1"), "it fails on this stream's columns (k string, i bigint", "use"
    ),
    sql("a bug in fn", lambda d: d.where(1 / 0), "ZeroDivisionError", "use the columns"),
    sql("new window", lambda d: d.withColumn("window", F.lit(1)), "'window' is taken by window results", "rename"),
    sql("reserved", lambda d: d.withColumn("_PS_x", F.lit(1)), "begin with _ps_ are Penstock's, got '_PS_x'", "rename"),
    sql("twice", lambda d: d.select("k", F.col("i").alias("K")), "two columns are named 'K'", "rename one"),
    sql("not a function", "select 1", "a function of a DataFrame is expected, got str", "pass a function"),  # type: ignore[arg-type]
    Wrong(
        "filter with an unknown column",
        lambda b: b.read().filter("nope > 1", name="good"),
        "filter 'good'",
        "it fails on this stream's columns",
        "use the columns",
    ),
    Wrong(
        "filter with an aggregate",
        lambda b: b.read().filter("sum(i) > 1", name="good"),
        "filter 'good'",
        "it fails on this stream's columns",
        "use the columns",
    ),
]


@pytest.mark.parametrize("wrong", SQL, ids=str)
def test_sql_that_is_not_stateless(wrong: Wrong, bench: Bench) -> None:
    if wrong.what == "a bug in fn":  # the user's own error is kept as the cause
        with pytest.raises(ps.FlowError, match=r"sql 'step': it fails on .*: division by zero") as caught:
            wrong.build(bench)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
    else:
        check(wrong, bench)


@pytest.mark.parametrize(
    "fn",
    [
        lambda d: d.select("i", F.explode("arr").alias("e")),
        lambda d: d.select("i", F.window("ts", "1 second").alias("w")),
        lambda d: d.select("i", F.window("ts", "2 seconds", "1 second").alias("w")),
        lambda d: d.unpivot(["k"], ["i"], "name", "value"),
        lambda d: d.alias("q").hint("broadcast").select("q.i"),
        lambda d: d.fillna(0).dropna().drop("arr").withColumnRenamed("i", "j").where("j > 0"),
        lambda d: d.sparkSession.sql("select i + 1 as j from {rows}", rows=d),
        lambda d: d.select("i", F.expr("transform(arr, x -> x + 1) as arr"), F.col("s.a").alias("a")),
    ],
    ids=["explode", "tumbling", "sliding", "unpivot", "hint", "chain", "sql text", "lambda"],
)
def test_sql_that_is_stateless_is_accepted(fn: Callable[[DataFrame], DataFrame], bench: Bench) -> None:
    assert bench.read().sql(fn).schema == fn(bench.batch).schema


STATE: dict[str, Any] = {"state_schema": "n bigint", "name": "sums"}


def stateful(what: str, rule: str, remedy: str, **options: Any) -> Wrong:
    arguments = {**STATE, "key": "k", **options}
    fn = arguments.pop("fn", keep)
    return Wrong(what, lambda b: b.read().stateful(fn, **arguments), "stateful 'sums'", rule, remedy)


COLUMNS = [
    Wrong(
        "time unknown", lambda b: b.read(time="t"), "read 'quotes'", "time 't' is not a column (there are k", "name one"
    ),
    Wrong("arrival unknown", lambda b: b.read(arrival="t"), "read 'quotes'", "arrival 't' is not a column", "name one"),
    Wrong(
        "time a long",
        lambda b: b.read(time="i"),
        "read 'quotes'",
        "time column 'i' is bigint, not a tim",
        "cast('timestamp')",
    ),
    Wrong(
        "time without zone",
        lambda b: b.read(time="ntz"),
        "read 'quotes'",
        "'ntz' is timestamp_ntz",
        "cast it before read",
    ),
    Wrong(
        "arrival a double", lambda b: b.read(arrival="v"), "read 'quotes'", "arrival column 'v' is double", "cast it"
    ),
    stateful("key unknown", "key 'q' is not a column", "name one of them", key="q"),
    stateful("one of two keys unknown", "key 'q' is not a column", "name one of them", key=("k", "q")),
    stateful("key in another case", "key 'K' is not a column", "name one of them", key="K"),
    stateful("key an array", "key 'arr' has type array<int>, but a key is of an atomic type", "fields", key="arr"),
    stateful("key a map", "key 'm' has type map<string,int>", "fields", key=("k", "m")),
    stateful("key a struct", "key 's' has type struct<a:int>", "make its fields columns", key="s"),
    stateful("key a variant", "key 'var' has type variant", "make its fields columns", key="var"),
    stateful("no key", "state is kept per key, and there is none", "name at least one", key=()),
    stateful("key twice", "key 'k' is given twice", "name it once", key=("k", "k")),
    stateful("key a number", "key is a column name or a tuple of them, got 3", "pass key='column'", key=3),
    stateful("no state schema", "state_schema is missing", "e.g. 'total double'", state_schema=None),
    stateful("empty state schema", "state_schema has no columns", "name at least one", state_schema=""),
    stateful(
        "state column is a key", "state column 'K' is also a key", "rename the state column", state_schema="K long"
    ),
    stateful("state twice", "two columns are named 'N'", "rename one", state_schema="n long, N long"),
    stateful("state reserved", "begin with _ps_ are Penstock's", "rename", state_schema="_ps_dead boolean"),
    stateful("state DDL", "state_schema 'n lnog' is not valid DDL (", "write it like", state_schema="n lnog"),
    stateful("not a function", "a function is expected, got int", "pass a function", fn=3),
    stateful("too wide", "64 key groups, so at most that many replicas, got 65", "pass 64 or less", replicas=65),
    stateful("elastic too wide", "at most that many replicas, got 100", "pass 64", replicas=ps.elastic(1, 100)),
    stateful("no replicas", "replicas must be at least 1, got 0", "pass 1 or more", replicas=0),
    Wrong(
        "window key unknown",
        lambda b: b.read(time="ts").window(ps.Time("1 s"), key="q", name="bars"),
        "window 'bars'",
        "key 'q' is not a column",
        "name one of them",
    ),
    Wrong(
        "window key a struct",
        lambda b: b.read(time="ts").window(ps.Time("1 s"), key="s", name="bars"),
        "window 'bars'",
        "key 's' has type struct<a:int>",
        "make its fields columns",
    ),
    Wrong(
        "farm key unknown",
        lambda b: b.read().map(same, replicas=2, partition="key", key="q"),
        "map 'same'",
        "key 'q' is not a column",
        "name one of them",
    ),
    Wrong(
        "farm key an array",
        lambda b: b.read().map(same, replicas=2, partition="key", key="arr"),
        "map 'same'",
        "key 'arr' has type array<int>",
        "make its fields columns",
    ),
]


@pytest.mark.parametrize("wrong", COLUMNS, ids=str)
def test_keys_times_and_state(wrong: Wrong, bench: Bench) -> None:
    check(wrong, bench)


def names(what: str, schema: Any, rule: str, remedy: str) -> Wrong:
    return Wrong(what, lambda b: b.read().map(same, schema), "map 'same'", rule, remedy)


def reads(what: str, column: str, rule: str) -> Wrong:
    return Wrong(
        what, lambda b: b.flow().read(b.batch.select("k", F.lit(1).alias(column)), name="q"), "read 'q'", rule, "rename"
    )


NAMES = [
    names("reserved", "_ps_pos long", "column names that begin with _ps_ are Penstock's, got '_ps_pos'", "rename it"),
    names("reserved in capitals", "_PS_x long", "begin with _ps_ are Penstock's, got '_PS_x'", "rename it"),
    names(
        "window", "k string, window long", "the column name 'window' is taken by window results", "rename the column"
    ),
    names("window in capitals", "k string, Window long", "the column name 'Window' is taken", "rename the column"),
    names("twice", "a long, a long", "two columns are named 'a'", "rename one of them"),
    names("twice but for case", "price long, Price long", "two columns are named 'Price' (Spark ignores", "rename one"),
    names("DDL", "a lnog", "schema 'a lnog' is not valid DDL (", "write it like 'a long, b double'"),
    names("DDL half", "a long,", "is not valid DDL (", "write it like 'a long, b double'"),
    names("one type", "int", "schema 'int' is one type, not columns", "name its column, as in 'a int'"),
    names("a DataType", IntegerType(), "schema is DDL text or a StructType, got IntegerType", "write it like"),
    names("no columns", "", "schema has no columns", "name at least one"),
    names("no fields", StructType(), "schema has no columns", "name at least one"),
    reads("read reserved", "_ps_pos", "begin with _ps_ are Penstock's"),
    reads("read window", "window", "'window' is taken by window results"),
    reads("read twice", "K", "two columns are named 'K'"),
    Wrong(
        "read nothing",
        lambda b: b.flow().read(b.batch.select(), name="q"),
        "read 'q'",
        "the DataFrame has no columns",
        "select at least one",
    ),
    Wrong(
        "dead letters clash",
        lambda b: b.flow().read(b.batch.select(F.col("k").alias("Error"))).map(same, on_error="dead_letter"),
        "map 'same'",
        "carry the error's text in a column 'error', which the stream has already",
        "rename that column",
    ),
]


@pytest.mark.parametrize("wrong", NAMES, ids=str)
def test_names_and_schemas(wrong: Wrong, bench: Bench) -> None:
    check(wrong, bench)


def farm(what: str, rule: str, remedy: str, **options: Any) -> Wrong:
    return Wrong(what, lambda b: b.read().map(same, **options), "map 'same'", rule, remedy)


FARMS = [
    farm("replicas 0", "replicas must be at least 1, got 0", "pass 1 or more", replicas=0),
    farm("replicas -1", "replicas must be at least 1, got -1", "pass 1 or more", replicas=-1),
    farm("replicas 1.5", "replicas are whole numbers, got 1.5", "pass 1 or more", replicas=1.5),
    farm("replicas True", "replicas are whole numbers, got True", "pass 1 or more", replicas=True),
    farm("replicas '3'", "replicas is a number, ps.elastic(lo, hi) or 'env', got '3'", "one of them", replicas="3"),
    farm("replicas a tuple", "replicas are whole numbers, got (1, 8)", "pass 1 or more", replicas=(1, 8)),
    Wrong(
        "elastic 3, 2", lambda b: ps.elastic(3, 2), "replicas", "elastic(3, 2): the lower limit is above", "swap them"
    ),
    Wrong("elastic 0, 2", lambda b: ps.elastic(0, 2), "replicas", "replicas must be at least 1, got 0", "pass 1"),
    Wrong("elastic 1, 2.5", lambda b: ps.elastic(1, 2.5), "replicas", "whole numbers, got 2.5", "pass 1"),  # type: ignore[arg-type]
    farm("chunk 0", "chunk is a whole number of rows from 1 to 1048576, got 0", "chunk=1024", replicas=2, chunk=0),
    farm("chunk 1.5", "chunk is a whole number of rows from 1 to 1048576, got 1.5", "chunk", replicas=2, chunk=1.5),
    farm("chunk True", "chunk is a whole number of rows", "chunk=1024", replicas=2, chunk=True),
    farm("chunk huge", "from 1 to 1048576, got 1048577", "chunk=1024", replicas=2, chunk=(1 << 20) + 1),
    farm("chunk alone", "chunk= is for farms", "pass replicas= as well", chunk=10),
    farm("ordered alone", "ordered= is for farms", "pass replicas= as well", ordered=True),
    farm("scheduling alone", "scheduling= is for farms", "pass replicas= as well", scheduling="on_demand"),
    farm("partition alone", "partition= is for farms", "pass replicas= as well", partition="broadcast"),
    farm("ordered not a boolean", "ordered is True or False, got 'yes'", "one of them", replicas=2, ordered="yes"),
    farm("partition key, no key", "partition='key' needs the key", "pass key='column'", replicas=2, partition="key"),
    farm("key, no partition", "key= is for partition='key'", "pass partition='key' as well", replicas=2, key="k"),
    farm("key, other partition", "key= is for partition='key'", "pass", replicas=2, key="k", partition="broadcast"),
    farm("teardown alone", "teardown without setup has nothing to give back", "pass setup=", teardown=print),
    farm("setup no function", "a function for setup= is expected, got int", "pass a function", setup=3),
    farm("teardown no function", "a function for teardown= is expected", "pass a function", setup=dict, teardown=3),
    farm("unknown option", "unknown option 'replica' (there are chunk, key,", "write 'replicas'", replica=2),
    farm("very unknown option", "unknown option 'xyz' (there are chunk,", "leave it out", xyz=2),
    farm("on_error", "on_error='ignore' is not one of stop, skip, dead_letter", "choose one", on_error="ignore"),
    farm(
        "scheduling",
        "scheduling='random' is not one of round_robin, on_demand",
        "choose",
        replicas=2,
        scheduling="random",
    ),
    farm(
        "partition",
        "partition='hash' is not one of round_robin, key, broadcast",
        "choose",
        replicas=2,
        partition="hash",
    ),
    farm(
        "broadcast on demand",
        "partition='broadcast' gives every replica every row, so there is nothing to take on demand",
        "drop scheduling='on_demand'",
        replicas=2,
        partition="broadcast",
        scheduling="on_demand",
    ),
    farm("latency_mode", "latency_mode='x' is not one of read_ready, read_write", "choose", latency_mode="x"),
    Wrong("map no function", lambda b: b.read().map("f"), "map 'map'", "a function is expected, got str", "pass a fun"),  # type: ignore[arg-type]
    Wrong(
        "flat_map", lambda b: b.read().flat_map(same, chunk=0), "flat_map 'same'", "chunk is a whole number", "chunk"
    ),
    Wrong(
        "filter on_error",
        lambda b: b.read().filter(same, on_error="dead_letter"),
        "filter 'same'",
        "on_error='dead_letter' is not one of stop, skip",
        "choose one",
    ),
    Wrong(
        "filter text with on_error",
        lambda b: b.read().filter("i > 0", on_error="skip"),
        "filter 'i > 0'",
        "on_error= is for predicates in Python",
        "leave it out",
    ),
    Wrong(
        "filter no function",
        lambda b: b.read().filter(3),  # type: ignore[arg-type]
        "filter 'filter'",
        "a function or SQL text is expected, got int",
        "pass a function or SQL text",
    ),
    Wrong(
        "dead letters that are not there",
        lambda b: b.read().map(same).dead_letter,
        "'same'",
        "it has no dead letters",
        "pass on_error='dead_letter'",
    ),
]


@pytest.mark.parametrize("wrong", FARMS, ids=str)
def test_farms_and_their_options(wrong: Wrong, bench: Bench) -> None:
    check(wrong, bench)


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", "²"])
@pytest.mark.parametrize("replicas", ["env", ps.elastic(1, 8)], ids=["env", "elastic"])
def test_replicas_of_the_environment(value: str, replicas: Any, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_REPLICAS", value)
    rule = f"PENSTOCK_REPLICAS must be a whole number of 1 or more, got {value!r}"
    check(farm("", rule, "set it so, or unset it", replicas=replicas), bench)


def test_replicas_of_the_environment_make_farms_static(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_REPLICAS", "3")
    read = bench.read()
    read.map(same, replicas="env", name="env")
    read.map(same, replicas=ps.elastic(1, 8), name="elastic")
    read.map(same, replicas=2, name="fixed")
    read.map(same, name="fused")
    read.stateful(keep, state_schema="n long", key="k", name="keyed", replicas=ps.elastic(1, 8))
    widths = {name: getattr(node, "width", None) for name, node in read.flow.operators.items() if name != "quotes"}
    shown = {name: (width.lo, width.hi) if width else None for name, width in widths.items()}
    assert shown == {"env": (3, 3), "elastic": (3, 3), "fixed": (2, 2), "fused": None, "keyed": (3, 3)}
    monkeypatch.setenv("PENSTOCK_REPLICAS", "65")
    check(stateful("", "at most that many replicas, got 65", "pass 64", replicas=ps.elastic(1, 8)), bench)
    monkeypatch.delenv("PENSTOCK_REPLICAS")
    assert read.map(same, replicas="env", name="default").flow.operators["default"].width.hi == 1


def test_options_that_say_what_is_so_anyway_are_accepted(bench: Bench) -> None:
    bench.read().map(same, ordered=False, scheduling="round_robin", partition="round_robin", on_error="stop", key=())


def lose_by_map(b: Bench) -> Any:
    losing = b.read(time="ts").map(same).map(same, "k string, v double", name="loser").filter("v > 0")
    return losing.map(same, name="innocent").window(ps.Time("1 s"), key="k", name="bars")


def lose_by_type(b: Bench) -> Any:
    text = b.read(time="ts").sql(lambda d: d.withColumn("ts", F.col("ts").cast("string")), name="loser")
    return text.window(ps.Time("1 s"), name="bars")


def lose_by_union(b: Bench) -> Any:
    read = b.read(time="ts")
    other = read.flow.read(b.batch, name="timeless")
    return read.union(other, name="both").window(ps.Time("1 s"), name="bars")


def lose_before_union(b: Bench) -> Any:
    short = "k string, v double"
    one, two = b.read(time="ts").split(same, same)
    return one.map(same, short, name="first").union(two.map(same, short)).window(ps.Time("1 s"), name="bars")


def lose_by_window(b: Bench) -> Any:
    bars = b.read(time="ts").window(ps.Count(10), key="k", name="inner").aggregate(n=ps.count())
    return bars.window(ps.Time("1 s"), name="bars")


def lost(what: str, build: Callable[[Bench], Any], by: str) -> Wrong:
    rule = f"a Time window needs the event-time column, and '{by}' lost it"
    return Wrong(what, build, "window 'bars'", rule, "keep the column")


def window(what: str, rule: str, remedy: str, **aggregates: Any) -> Wrong:
    return Wrong(
        what,
        lambda b: b.read(time="ts").window(ps.Time("1 s"), key="k", name="bars").aggregate(**aggregates),
        "window 'bars'",
        rule,
        remedy,
    )


WINDOWS = [
    lost("by a map", lose_by_map, "loser"),
    lost("by its type", lose_by_type, "loser"),
    lost("by a union", lose_by_union, "both"),
    lost("before a union", lose_before_union, "first"),
    lost("by a window", lose_by_window, "inner"),
    lost(
        "in dead letters",
        lambda b: b.read(time="ts").map(same, on_error="dead_letter").dead_letter.window(ps.Time("1 s"), name="bars"),
        "same.dead",
    ),
    Wrong(
        "never named",
        lambda b: b.read().map(same).window(ps.Time("1 s"), name="bars"),
        "window 'bars'",
        "a Time window needs the event-time column, and read() named none",
        "read(df, time=...)",
    ),
    Wrong(
        "no spec",
        lambda b: b.read(time="ts").window("1 s"),  # type: ignore[arg-type]
        "window 'window'",
        "a window is ps.Time(...), ps.Count(...) or ps.Delta(...), got str",
        "window spec",
    ),
    Wrong("size", lambda b: ps.Time("0 s"), "Time", "size must be more than zero", "write it like"),
    window("no aggregate", "aggregate() names at least one result", "aggregate(n=ps.count())"),
    window("not an aggregate", "total= is not an aggregate but str", "use ps.sum", total="sum"),
    window("result named as the key", "the result name 'K' is taken by the key", "choose another", K=ps.count()),
    window("result named window", "the result name 'window' is taken", "choose another", window=ps.count()),
    window("result reserved", "begin with _ps_ are Penstock's", "rename", _ps_rows=ps.count()),
    window("result twice", "two columns are named 'N'", "rename one", n=ps.count(), N=ps.count()),
    window("unknown column", "total reads the unknown column 'q'", "use one of", total=ps.sum("q")),
    window("not a number", "sum('k') needs an integer or floating column", "cast it", total=ps.sum("k")),
]


@pytest.mark.parametrize("wrong", WINDOWS, ids=str)
def test_windows(wrong: Wrong, bench: Bench) -> None:
    check(wrong, bench)


def test_two_windows_may_be_begun_before_the_first_is_finished(bench: Bench) -> None:
    read = bench.read(time="ts")
    one, two = read.window(ps.Time("1 s"), key="k"), read.window(ps.Time("2 s"), key="k")
    assert [w.aggregate(n=ps.count()).port for w in (one, two, two)] == ["window", "window_2", "window_3"]
    assert [n.spec.size_us for n in read.flow.operators.values() if hasattr(n, "spec")] == [10**6, 2 * 10**6, 2 * 10**6]


def test_results_of_windows_can_be_mapped_with_their_window_column(bench: Bench) -> None:
    bars = bench.read(time="ts").window(ps.Time("1 s"), key="k").aggregate(n=ps.count())
    schema = "window struct<start:timestamp,end:timestamp>, n double"
    assert bars.map(same, schema).schema.names == ["window", "n"]
    assert bars.sql(lambda d: d.where("n > 1")).schema.names == ["k", "window", "n"]
    assert bars.map(same, on_error="dead_letter").dead_letter.schema.names == ["k", "window", "n", "error"]


def union(what: str, build: Callable[[Bench, ps.Stream], Any], rule: str, remedy: str) -> Wrong:
    return Wrong(what, lambda b: build(b, b.narrow()), "union 'all'", rule, remedy)


def other(b: Bench, s: ps.Stream, *columns: Any) -> ps.Stream:
    return s.flow.read(b.batch.select(*columns), name="trades")


SHAPES = [
    union("alone", lambda b, s: s.union(name="all"), "a union has at least two streams", "pass the others"),
    union(
        "type",
        lambda b, s: s.union(other(b, s, "k", F.col("i").cast("int"), "v"), name="all"),
        "'quotes' and 'trades' differ: column 1 is 'i bigint' and 'i int'",
        "same columns and types",
    ),
    union(
        "missing",
        lambda b, s: s.union(other(b, s, "k", "i"), name="all"),
        "'quotes' and 'trades' differ: column 2 is 'v double' and missing",
        "same columns and types",
    ),
    union(
        "more",
        lambda b, s: other(b, s, "k").union(s, name="all"),
        "'trades' and 'quotes' differ: column 1 is missing and 'i bigint'",
        "same columns and types",
    ),
    union(
        "order",
        lambda b, s: s.union(other(b, s, "i", "k", "v"), name="all"),
        "column 0 is 'k string' and 'i bigint'",
        "same columns and types",
    ),
    union(
        "third",
        lambda b, s: s.union(s, other(b, s, "k"), name="all"),
        "'quotes' and 'trades' differ",
        "same columns and types",
    ),
    union(
        "another flow",
        lambda b, s: s.union(ps.Flow("g").read(b.batch.select("k", "i", "v")), name="all"),
        "'read' belongs to another flow, 'g'",
        "read both in one flow",
    ),
    union("a frame", lambda b, s: s.union(b.batch, name="all"), "a stream is expected, got DataFrame", "of this flow"),
    Wrong("split", lambda b: b.read().split(), "split 'split'", "a split has at least one predicate", "pass functions"),
    Wrong(
        "split by text",
        lambda b: b.read().split("i > 0", name="parts"),  # type: ignore[arg-type]
        "split 'parts'",
        "a function is expected, got str",
        "pass a function",
    ),
    Wrong("read a list", lambda b: b.flow().read([1]), "read 'read'", "a DataFrame is expected, got list", "pass a D"),  # type: ignore[arg-type]
    Wrong(
        "batch then stream",
        lambda b: b.read().flow.read(b.stream, name="rate"),
        "read 'rate'",
        "not both: 'quotes' is a batch DataFrame, this a stream",
        "join the table to the stream before read()",
    ),
    Wrong(
        "stream then batch",
        lambda b: b.streaming().flow.read(b.batch, name="table"),
        "read 'table'",
        "not both: 'rate' is a stream, this a batch DataFrame",
        "join the table to the stream before",
    ),
    Wrong(
        "to_df of a stream", lambda b: b.streaming().to_df(), "flow 'f'", "to_df() is for batch DataFrames", "start("
    ),
    Wrong(
        "flow name", lambda b: ps.Flow("9 lives"), "flow", "the name '9 lives' is not a letter followed by", "choose"
    ),
    Wrong("flow name empty", lambda b: ps.Flow(""), "flow", "the name '' is not", "choose such a name"),
    Wrong("flow name a number", lambda b: ps.Flow(3), "flow", "the name 3 is not", "choose such a name"),  # type: ignore[arg-type]
    Wrong("operator name", lambda b: b.read().map(same, name="a.b"), "map", "the name 'a.b' is not a letter", "choose"),
    Wrong(
        "name twice",
        lambda b: b.read().map(same, name="quotes"),
        "map 'quotes'",
        "another operator or sink has this name",
        "rename one",
    ),
    Wrong(
        "name of a sink",
        lambda b: b.read().write("memory", name="out").map(same, name="out"),
        "map 'out'",
        "another operator or sink has this name",
        "rename one",
    ),
    Wrong(
        "sink named as an operator",
        lambda b: b.read().write("memory", name="quotes"),
        "write 'quotes'",
        "another operator or sink has this name",
        "rename one",
    ),
    Wrong(
        "window named twice",
        lambda b: b.read(time="ts").window(ps.Time("1 s"), name="quotes"),
        "window 'quotes'",
        "another operator or sink has this name",
        "rename one",
    ),
    Wrong(
        "explain",
        lambda b: b.read().flow.explain("dot"),
        "explain",
        "format='dot' is not one of text, mermaid, farm",
        "choose one",
    ),
]


@pytest.mark.parametrize("wrong", SHAPES, ids=str)
def test_the_shape_of_a_flow(wrong: Wrong, bench: Bench) -> None:
    check(wrong, bench)


def test_names_given_by_penstock_never_clash(bench: Bench) -> None:
    read = bench.read()
    ports = [read.map(same).port for _ in range(3)] + [read.map(lambda b: b).port for _ in range(2)]
    assert ports == ["same", "same_2", "same_3", "map", "map_2"]
    read.write("memory").write("memory").write("parquet", path="p1")
    assert list(read.flow.sinks) == ["to_memory", "to_memory_2", "to_parquet"]


def sink(what: str, rule: str, remedy: str, *arguments: Any, **options: Any) -> Wrong:
    return Wrong(what, lambda b: b.narrow().write(*arguments, name="out", **options), "write 'out'", rule, remedy)


def twice(*paths: str) -> Callable[[Bench], Any]:
    def build(b: Bench) -> None:
        stream = b.narrow()
        for number, path in enumerate(paths):
            stream.write("parquet", path=path, name=f"sink{number}")

    return build


SINKS = [
    sink("no path", "the file format 'parquet' needs path=", "pass path='some/folder'", "parquet"),
    sink("empty path", "the file format 'csv' needs path=", "pass path=", "csv", path=""),
    sink("path for memory", "'memory' takes no path", "leave it out", "memory", path="x"),
    sink("path for console", "'console' takes no path", "leave it out", "console", path="x"),
    sink("path for a function", "'function' takes no path", "leave it out", "function", path="x", fn=print),
    sink("no fn", "a function sink needs fn=", "pass fn(table, batch_id)", "function"),
    sink("fn no function", "a function is expected, got int", "pass a function", "function", fn=3),
    sink("fn for parquet", "fn= is for function sinks", "write('function', fn=...)", "parquet", path="x", fn=print),
    sink("unknown format", "Spark knows no format 'parkuet'", "use parquet, orc, json,", "parkuet", path="x"),
    sink(
        "format to be deployed", "Spark knows no format 'kafka' ([KAFKA_DATA_SOURCE", "use parquet,", "kafka", path="x"
    ),
    sink("not files", "'rate' is not a format of files that can be written", "write('function'", "rate", path="x"),
    sink("noop", "'noop' is not a format of files that can be written", "write('function'", "noop", path="x"),
    sink("read only", "'binaryfile' is not a format of files that", "write('function'", "binaryFile", path="x"),
    sink("text of three columns", "text files cannot hold column 'i' of type bigint", "turn it into", "text", path="x"),
    sink("partitionBy", "a batch is one file", "leave partitionBy out", "parquet", path="x", partitionBy="k"),
    sink("partition_by", "a batch is one file", "leave partition_by out", "json", path="x", partition_by="k"),
    sink("option of memory", "unknown option 'mode' (there are none)", "leave it out", "memory", mode="append"),
    sink("option of console", "unknown option 'row' (there are rows)", "write 'rows'", "console", row=3),
    Wrong("no name", lambda b: b.narrow().write(3), "write", "a format is a name, got 3", "write('parquet'"),  # type: ignore[arg-type]
    Wrong(
        "one folder",
        twice("out", "out"),
        "write 'sink1'",
        "sink 'sink0' writes to out already",
        "its own folder",
    ),
    Wrong(
        "one folder spelt twice",
        twice("/tmp/a/out", "file:///tmp/a/./out/"),
        "write 'sink1'",
        "sink 'sink0' writes to /tmp/a/out already",
        "its own folder",
    ),
    Wrong(
        "csv of windows",
        lambda b: b.read(time="ts").window(ps.Time("1 s")).aggregate(n=ps.count()).write("csv", path="x"),
        "write 'to_csv'",
        "csv files cannot hold column 'window' of type struct<start:timestamp,end:timestamp>",
        "sql step",
    ),
    Wrong(
        "text of two columns",
        lambda b: b.flow().read(b.batch.select("k", F.col("k").alias("l"))).write("text", path="x"),
        "write 'to_text'",
        "text files hold one column",
        "join the columns into one",
    ),
]


@pytest.mark.parametrize("wrong", SINKS, ids=str)
def test_sinks(wrong: Wrong, bench: Bench) -> None:
    check(wrong, bench)


@pytest.mark.parametrize("format", ["parquet", "PARQUET", "orc", "json", "csv", "xml"])
def test_spark_file_formats_are_accepted(format: str, bench: Bench) -> None:
    stream = bench.narrow().write(format, path=bench.folder / "out", name="out")
    assert stream.flow.sinks["out"].format == format.lower()
    assert stream.flow.sinks["out"].path == str(bench.folder / "out")


def start(what: str, build: Callable[[Bench], ps.Flow], rule: str, remedy: str, where: str = "flow 'f'") -> Wrong:
    def begin(b: Bench) -> None:
        build(b).start(b.spark, str(b.folder / "checkpoint"))

    return Wrong(what, begin, where, rule, remedy)


STARTS = [
    start("no reads", lambda b: b.flow(), "it reads nothing", "begin with flow.read(df)"),
    start("no sinks", lambda b: b.streaming().map(same).flow, "it writes nothing", "end with stream.write(...)"),
    start("batch", lambda b: b.narrow().write("memory").flow, "start() is for streams", "use stream.to_df(spark)"),
    start(
        "dead letters",
        lambda b: b.streaming().map(same, on_error="dead_letter").write("memory").flow,
        "its dead letters go nowhere",
        "write its stream's .dead_letter to a sink",
        "map 'same'",
    ),
    start(
        "dead letters of flat_map",
        lambda b: b.streaming().flat_map(same, on_error="dead_letter").write("memory").flow,
        "its dead letters go nowhere",
        "write its stream's .dead_letter to a sink",
        "flat_map 'same'",
    ),
    Wrong(
        "policy",
        lambda b: b.streaming().write("memory").flow.start(b.spark, str(b.folder / "checkpoint"), policy=3),
        "flow 'f'",
        "policy 3 has no decide()",
        "pass a policy object, the name of one, or None",
    ),
]


@pytest.mark.parametrize("wrong", STARTS, ids=str)
def test_starting(wrong: Wrong, bench: Bench) -> None:
    check(wrong, bench)
    assert not (bench.folder / "checkpoint").exists()  # a flow that is refused leaves nothing behind


def test_a_refused_operator_leaves_the_flow_as_it_was(bench: Bench) -> None:
    read = bench.read(time="ts")
    before = read.flow.explain()
    for build in (
        lambda: read.map(same, replicas=0),
        lambda: read.sql(lambda d: d.distinct()),
        read.union,
        lambda: read.window(ps.Time("1 s"), key="k").aggregate(total=ps.sum("k")),
        lambda: read.write("parquet"),
        lambda: read.stateful(keep, key="q", state_schema="n long"),
    ):
        with pytest.raises(ps.FlowError):
            build()
    assert read.flow.explain() == before


def test_a_schema_changed_later_by_its_owner_does_not_change_the_flow(bench: Bench) -> None:
    mine = StructType().add("k", "string")
    stream = bench.read().map(same, mine)
    mine.add("_ps_pos", "long")
    assert stream.schema.names == ["k"]
    frame = bench.batch.select("k")
    read = bench.flow().read(frame)
    frame.schema.add("later", "long")
    assert read.schema.names == ["k"]
