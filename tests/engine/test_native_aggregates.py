"""Aggregates whose panes Spark computes give what Spark's own functions give over the same windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock as ps
from penstock.windows import aggregates as agg

ROWS, KEYS = 3000, 5


def frame(spark: SparkSession) -> DataFrame:
    """Rows with nulls, NaN, infinities, a large mean, texts, dates and decimals."""
    rng = np.random.default_rng(7)
    d = rng.normal(size=ROWS) + 1e6
    d[::97] = math.nan
    d[5::501] = math.inf
    data = pd.DataFrame(
        {
            "k": rng.integers(0, KEYS, ROWS),
            "t": rng.integers(0, 60_000_000, ROWS),
            "d": d,
            "x": rng.integers(-50, 50, ROWS),
            "y": rng.normal(size=ROWS),
            "drop": rng.random(ROWS) < 0.1,
        }
    )
    given = spark.createDataFrame(data)
    null = F.when(~F.col("drop"), F.col("x"))
    return given.select(
        "k", F.timestamp_micros("t").alias("ts"), "d", null.cast("int").alias("x"), "y",
        F.concat(F.lit("s"), F.col("x").cast("string")).alias("s"),
        F.date_add(F.lit("2024-01-01"), F.col("x").cast("int")).alias("day"),
        F.col("y").cast("decimal(12, 4)").alias("dec"),
    )  # fmt: skip


def test_as_spark(spark: SparkSession) -> None:
    df = frame(spark)
    bars = ps.Flow("native").read(df, time="ts").window(ps.Time("10 s", slide="4 s"), key="k", name="w")
    out = bars.aggregate(
        least_d=agg.min("d"), most_d=agg.max("d"), least_s=agg.min("s"), most_day=agg.max("day"), most_x=agg.max("x"),
        least_dec=agg.min("dec"), var_x=agg.var("x"), std_y=agg.std("y"), var_d=agg.var("d"),
        cov=agg.covariance("x", "y"), line=agg.regression("x", "y"),
        hist=agg.histogram("y", [-1, 0, 0.5, math.inf]), n=agg.count("x"),
        about=agg.quantile("y", 0.5, approximate=True), some=agg.distinct("s", approximate=True),
    )  # fmt: skip
    got = out.to_df(spark)
    bins = [
        F.count_if((F.col("y") >= -1) & (F.col("y") < 0)),
        F.count_if((F.col("y") >= 0) & (F.col("y") < 0.5)),
        F.count_if(F.col("y") >= 0.5),
    ]
    expected = df.groupBy("k", F.window("ts", "10 seconds", "4 seconds")).agg(
        F.min("d").alias("least_d"), F.max("d").alias("most_d"), F.min("s").alias("least_s"),
        F.max("day").alias("most_day"), F.min("dec").alias("least_dec"), F.max("x").alias("most_x"),
        F.var_samp("x").alias("var_x"), F.stddev_samp("y").alias("std_y"), F.var_samp("d").alias("var_d"),
        F.covar_samp("x", "y").alias("cov"),
        F.struct(F.regr_slope("y", "x").alias("slope"), F.regr_intercept("y", "x").alias("intercept"),
                 F.regr_r2("y", "x").alias("r2")).alias("line"),
        F.array(*bins).alias("hist"), F.count("x").alias("n"),
        F.percentile("y", 0.5).alias("about"), F.count_distinct("s").alias("some"),
        F.count("y").alias("rows"),
    )  # fmt: skip
    for name in got.columns:
        assert got.schema[name].dataType.simpleString() == expected.schema[name].dataType.simpleString(), name
    found = {(r["k"], r["window"]["start"]): r.asDict(recursive=True) for r in got.collect()}
    wanted = {(r["k"], r["window"]["start"]): r.asDict(recursive=True) for r in expected.collect()}
    assert found.keys() == wanted.keys() and len(found) > 50
    for window, want in wanted.items():
        have = found[window]
        for name in (
            "least_d",
            "most_d",
            "least_s",
            "most_day",
            "least_dec",
            "most_x",
            "var_x",
            "std_y",
            "var_d",
            "cov",
        ):
            assert close(have[name], want[name]), (name, have[name], want[name])
        for name in ("slope", "intercept", "r2"):
            assert close(have["line"][name], want["line"][name]), (name, have["line"], want["line"])
        assert have["hist"] == want["hist"] and have["n"] == want["n"]
        if want["rows"] > 50:
            assert abs(have["about"] - want["about"]) < 0.6  # standard normal: a few ranks of a hundred
        assert abs(have["some"] - want["some"]) <= max(2, 0.08 * want["some"])


def close(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-7, abs_tol=1e-9) or (math.isnan(a) and math.isnan(b))
    return bool(a == b)
