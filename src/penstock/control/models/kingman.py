"""How long an item waits in the queue of one subtask, as a function of how many subtasks there are.

Thesis 001, section 4.6.2. Each subtask is a GI/G/1 server; its mean wait is Kingman's approximation (Eq. 4.4)

    W^K = S rho / (1 - rho) * (cA^2 + cS^2) / 2,     rho = S / A

with S the mean service time, A the mean inter-arrival time at one subtask, cS and cA their coefficients of variation.
A fitting factor makes the model right where it was measured (Eq. 4.5-4.6): e = w / W^K, with w the measured wait. With
the load spread evenly, p* subtasks instead of p see

    rho(p*) = S p / (A p*),     W(p*) = e S rho(p*) / (1 - rho(p*)) * (cA^2 + cS^2) / 2      (Eq. 4.7)

Where the thesis is silent: at rho(p*) >= 1 the closed form turns *negative* and would fit any budget, so W is infinite
there; if W^K is 0 (nothing varies, or nothing arrives) there is nothing to fit and e = 1.

Kingman's bound is loose if arrivals vary little. Kraemer and Langenbach-Belz (1976) multiply it by (an option of the
thesis' prototype)

    cA <= 1:  exp(-2 (1 - rho) (1 - cA^2)^2 / (3 rho (cA^2 + cS^2)))
    cA >  1:  exp(-(1 - rho) (cA^2 - 1) / (cA^2 + 4 cS^2))

Two moments do not settle bursty arrivals: above cA = 1 the correction is right for two exponential phases of equal
weight, while gamma arrivals of the same cA wait longer than even Kingman says. Hence it is off unless asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.control.checks import above, at_least
from penstock.errors import PolicyError


def kingman_wait(service: float, interarrival: float, arrival_cv: float, service_cv: float) -> float:
    """Mean wait of Eq. 4.4, in the unit of `service`; infinite from utilisation 1 on. Exact for M/G/1.

    >>> kingman_wait(4.0, 5.0, 1.0, 0.5)
    10.000000000000002
    >>> kingman_wait(5.0, 5.0, 1.0, 1.0)
    inf
    """
    _check(service, interarrival, arrival_cv, service_cv)
    return _wait(service, service / interarrival, arrival_cv, service_cv)


def klb_factor(utilisation: float, arrival_cv: float, service_cv: float) -> float:
    """What Kraemer and Langenbach-Belz multiply Kingman's wait by; 1 for Poisson arrivals, never above 1.

    >>> klb_factor(0.8, 1.0, 0.5), round(klb_factor(0.8, 0.5, 0.5), 4), round(klb_factor(0.8, 2.0, 1.0), 4)
    (1.0, 0.829, 0.9277)
    """
    ca2, cs2 = arrival_cv * arrival_cv, service_cv * service_cv
    if ca2 + cs2 == 0.0 or utilisation <= 0.0:
        return 1.0  # there is no wait to correct
    idle = max(0.0, 1.0 - utilisation)
    if arrival_cv <= 1.0:
        return math.exp(-2.0 * idle * (1.0 - ca2) ** 2 / (3.0 * utilisation * (ca2 + cs2)))
    return math.exp(-idle * (ca2 - 1.0) / (ca2 + 4.0 * cs2))


@dataclass(frozen=True)
class QueueModel:
    """The wait at one task as a function of its parallelism, fitted to what was measured (thesis 001, 4.6.2).

    Times are in any one unit. `wait` None means not measured: the model is then used unfitted. `fit_band` x keeps the
    factor within [1 - x, 1 + x], which limits over-scaling after a burst; the thesis' text has no such limit (None),
    its prototype 0.2. The digest's worked example:

    >>> model = QueueModel(service=4.0, interarrival=5.0, arrival_cv=1.0, service_cv=0.5, width=8, wait=14.0)
    >>> round(model.fit, 3)
    1.4
    >>> [round(model.wait_at(p), 3) for p in (7, 8, 9, 10, 12, 16)]
    [37.333, 14.0, 8.615, 6.222, 4.0, 2.333]
    >>> model.wait_at(6)
    inf
    """

    service: float  # S
    interarrival: float  # A, at one subtask
    arrival_cv: float
    service_cv: float
    width: int  # p, where the rest was measured
    wait: float | None = None  # w, measured
    klb: bool = False
    fit_band: float | None = None

    def __post_init__(self) -> None:
        _check(self.service, self.interarrival, self.arrival_cv, self.service_cv)
        at_least("queue model", "width", self.width, 1)
        if self.wait is not None:
            at_least("queue model", "wait", self.wait, 0.0)
        if self.fit_band is not None:
            at_least("queue model", "fit_band", self.fit_band, 0.0)

    @property
    def fit(self) -> float:
        """The fitting factor e: measured wait over modelled wait; 1 if there is nothing to fit to.

        >>> QueueModel(4.0, 5.0, 0.0, 0.0, width=8, wait=3.0).fit
        1.0
        """
        unfitted = self._unfitted(self.width)
        if self.wait is None or unfitted == 0.0 or not math.isfinite(unfitted):
            return 1.0
        factor = self.wait / unfitted
        if not math.isfinite(factor):
            return 1.0  # a modelled wait too small to divide by
        if self.fit_band is None:
            return factor
        return min(max(factor, 1.0 - self.fit_band), 1.0 + self.fit_band)

    def utilisation_at(self, width: int) -> float:
        """rho(p*) = S p / (A p*).

        >>> QueueModel(4.0, 5.0, 1.0, 1.0, width=8).utilisation_at(16)
        0.4
        """
        # In this order numbers far out give infinity at worst, never infinity by infinity.
        return self.service / self.interarrival * (self.width / width)

    def wait_at(self, width: int) -> float:
        """W(p*), infinite from utilisation 1 on. At the measured width it is the measured wait itself.

        >>> QueueModel(4.0, 5.0, 1.0, 0.5, width=8, wait=14.0).wait_at(8)
        14.0
        """
        if width < 1:
            raise PolicyError("queue model", f"width must be at least 1, got {width}", "ask for 1 or more subtasks")
        if width == self.width and self.wait is not None and self.fit_band is None and self._exact:
            return self.wait  # e W^K, without its two roundings
        unfitted = self._unfitted(width)
        if unfitted == 0.0 or not math.isfinite(unfitted):
            return unfitted
        return self.fit * unfitted

    def floor(self, utilisation: float = 0.9, *, most: int = 2**31) -> int:
        """The fewest subtasks that stay at or below a utilisation (4.6.4): ceil(S p / (utilisation A)); `most` at most.

        >>> QueueModel(9.0, 10.0, 0.8, 0.7, width=10).floor(0.9)
        10
        """
        above("queue model", "utilisation", utilisation, 0.0)
        # The factor keeps 9 * 10 / (0.9 * 10) = 10.000000000000002 at 10. Cut first: the quotient may be infinite.
        wanted = self.utilisation_at(1) / utilisation * (1.0 - 1e-12)
        return max(1, math.ceil(min(float(most), wanted)))

    @property
    def _exact(self) -> bool:
        unfitted = self._unfitted(self.width)
        return unfitted > 0.0 and math.isfinite(unfitted)

    def _unfitted(self, width: int) -> float:
        rho = self.utilisation_at(width)
        wait = _wait(self.service, rho, self.arrival_cv, self.service_cv)
        return wait * klb_factor(rho, self.arrival_cv, self.service_cv) if self.klb else wait


def _check(service: float, interarrival: float, arrival_cv: float, service_cv: float) -> None:
    at_least("queue model", "service", service, 0.0)
    above("queue model", "interarrival", interarrival, 0.0)
    at_least("queue model", "arrival_cv", arrival_cv, 0.0)
    at_least("queue model", "service_cv", service_cv, 0.0)


def _wait(service: float, rho: float, arrival_cv: float, service_cv: float) -> float:
    if rho >= 1.0:
        return math.inf
    busy, spread = service * rho / (1.0 - rho), (arrival_cv * arrival_cv + service_cv * service_cv) / 2.0
    return busy * spread if busy > 0.0 and spread > 0.0 else 0.0  # 0 by infinity would be no number
