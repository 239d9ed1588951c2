"""Where price and volume are going: the high-frequency trading operator of thesis 000 (7.1).

Per window, in two steps:

    1. quotes of the same interval (1 ms) become one, each attribute its mean, the time too;
    2. a polynomial (degree 2: the thesis does not say) of time is fitted to the mean prices, and another to the mean
       volumes, by Levenberg-Marquardt; the forecast is their value `ahead` after the last quote.

The number of means changes from window to window although a count window has always as many quotes: this is what makes
the cost of a window vary in the thesis. Coefficients are in powers of seconds since the window's first mean.

    >>> import pyarrow as pa
    >>> from penstock.windows.content import Window
    >>> ts = pa.array([0, 400, 1_000, 2_000], pa.timestamp("us"))  # the first two share a millisecond
    >>> rows = pa.table({"ts": ts, "price": [10.0, 10.4, 11.0, 12.0], "volume": [5.0, 5.0, 5.0, 5.0]})
    >>> result = Forecast(ahead="1 ms", degree=1)(Window(rows, {"symbol": "A"}, 1, 4))
    >>> round(result["price"], 2), round(result["volume"], 2), result["points"]
    (13.0, 5.0, 3)

In a flow, with the thesis's window: `quotes.window(ps.Count(1000, slide=25), key="symbol").apply(Forecast(),
schema=FORECAST_SCHEMA)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.apps.queries.columns import Content, Floats, microseconds_of, numbers
from penstock.apps.queries.levenberg import fit_polynomial
from penstock.durations import Duration, microseconds

FORECAST_SCHEMA = (
    "price double, volume double, price_coefficients array<double>, volume_coefficients array<double>, points bigint"
)


@dataclass(frozen=True)
class Forecast:
    """Fit price and volume over time and look `ahead`; rows without time, price or volume are left out."""

    time: str = "ts"
    price: str = "price"
    volume: str = "volume"
    degree: int = 2
    ahead: Duration = "10 ms"
    resolution: Duration = "1 ms"
    schema: ClassVar[str] = FORECAST_SCHEMA

    def __post_init__(self) -> None:
        """Refuse durations that are none when the flow is built, not at the first window."""
        microseconds(self.ahead, name="ahead", where="Forecast")
        microseconds(self.resolution, name="resolution", where="Forecast")

    def __call__(self, window: Content) -> dict[str, Any]:
        """Return the forecast of one window; nulls if it has fewer than degree + 1 different means."""
        (_, price, volume), used = numbers(window, self.time, self.price, self.volume)
        times = microseconds_of(window[self.time][used])
        at, (prices, volumes) = means_per_interval(times, (price, volume), microseconds(self.resolution))
        row: dict[str, Any] = {"points": len(at)}
        then = at[-1:] + microseconds(self.ahead) / 1e6
        for name, values in (("price", prices), ("volume", volumes)):
            fit = fit_polynomial(at, values, self.degree)
            row[name] = None if fit is None else float(fit.at(then)[0])
            row[f"{name}_coefficients"] = None if fit is None else fit.coefficients.tolist()
        return row


def means_per_interval(
    times: NDArray[np.int64], columns: tuple[Floats, ...], interval: int
) -> tuple[Floats, list[Floats]]:
    """Return, per interval of `interval` microseconds that has rows, the mean time and the mean of each column.

    Times in are microseconds, in any order; times out are seconds since the first row's interval began, ascending.

    >>> at, (mean,) = means_per_interval(np.array([5, 100, 999, 2500]), (np.array([1.0, 2.0, 6.0, 7.0]),), 1000)
    >>> at.round(6).tolist(), mean.tolist()
    ([0.000368, 0.0025], [3.0, 7.0])
    """
    if not len(times):
        return np.empty(0), [np.empty(0) for _ in columns]
    if (np.diff(times) < 0).any():
        order = np.argsort(times, kind="stable")
        times, columns = times[order], tuple(column[order] for column in columns)
    number = times // interval
    first = np.flatnonzero(np.r_[True, number[1:] != number[:-1]])
    rows = np.diff(np.r_[first, len(times)])
    since = (times - number[0] * interval).astype(np.float64)  # small numbers: means of raw stamps would lose digits
    return np.add.reduceat(since, first) / rows / 1e6, [np.add.reduceat(c, first) / rows for c in columns]
