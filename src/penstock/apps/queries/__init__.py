"""Window queries of the theses and of trading, ready for `apply`: each an object that is the function.

| query | computes | `pane`, `combine` | thesis |
|---|---|---|---|
| `Polynomial` | a polynomial fitted by Levenberg-Marquardt | | 002, 6.1 |
| `Forecast` | mean quotes per millisecond, fitted, looked ahead | | 000, 7.1 |
| `Trading` | seventeen statistics of bid and ask quotes | yes | 000, 4.9.2 |
| `Skyline` | the points that no other beats | yes | 000, 4.9.3 |
| `Above`, `AboveMean` | counts above a threshold, above the window's mean | the first | 000, 4.6 |
| `Median` | the exact median | yes | 000, 4.5 |
| `Vwap` | volume-weighted average price | yes | 000, 4.5 |
| `Candles` | open, high, low, close, volume | yes | 000, 7.1 |

    windows.apply(Vwap(), schema=VWAP_SCHEMA)                                           # whole windows
    windows.apply(pane=Vwap().pane, combine=Vwap().combine, schema=VWAP_SCHEMA)         # the same results, by panes
"""

from __future__ import annotations

from penstock.apps.queries.above import ABOVE_MEAN_SCHEMA, ABOVE_SCHEMA, Above, AboveMean
from penstock.apps.queries.candles import CANDLES_SCHEMA, Candles
from penstock.apps.queries.forecast import FORECAST_SCHEMA, Forecast
from penstock.apps.queries.median import MEDIAN_SCHEMA, Median
from penstock.apps.queries.polynomial import POLYNOMIAL_SCHEMA, Polynomial
from penstock.apps.queries.skyline import SKYLINE_SCHEMA, Skyline, SkylineBuffer
from penstock.apps.queries.trading import TRADING_SCHEMA, Trading
from penstock.apps.queries.vwap import VWAP_SCHEMA, Vwap

__all__ = [
    "ABOVE_MEAN_SCHEMA",
    "ABOVE_SCHEMA",
    "CANDLES_SCHEMA",
    "FORECAST_SCHEMA",
    "MEDIAN_SCHEMA",
    "POLYNOMIAL_SCHEMA",
    "SKYLINE_SCHEMA",
    "TRADING_SCHEMA",
    "VWAP_SCHEMA",
    "Above",
    "AboveMean",
    "Candles",
    "Forecast",
    "Median",
    "Polynomial",
    "Skyline",
    "SkylineBuffer",
    "Trading",
    "Vwap",
]
