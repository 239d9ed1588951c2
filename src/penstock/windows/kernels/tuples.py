"""Sliding windows one tuple at a time: insert the newest, evict the oldest, query all.

For the latency path, where a result is due after every tuple. Values are any Python objects; `combine(older, newer)`
must be associative and need not commute, unless a kernel says otherwise. docs/kernels.md compares them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")


class Kernel(ABC, Generic[V]):
    """A first-in, first-out window and the combination of what it holds."""

    def __init__(self, combine: Callable[[V, V], V]) -> None:
        self._combine = combine

    @abstractmethod
    def insert(self, value: V) -> None:
        """Add the newest value."""

    @abstractmethod
    def evict(self) -> None:
        """Drop the oldest value; an empty window is an error."""

    @abstractmethod
    def query(self) -> V | None:
        """Return the combination of all values, oldest first; None if there are none."""

    @abstractmethod
    def __len__(self) -> int: ...

    def _join(self, a: V | None, b: V | None) -> V | None:
        """Combine where either side may be missing: no identity is asked for."""
        if a is None:
            return b
        return a if b is None else self._combine(a, b)


class Recompute(Kernel[V]):
    """Combine everything anew at each query: O(n), needs nothing, so it is right for any function.

    >>> window = Recompute(lambda a, b: a + b)
    >>> for letter in "abc": window.insert(letter)
    >>> window.evict(); window.query()
    'bc'
    """

    def __init__(self, combine: Callable[[V, V], V]) -> None:
        super().__init__(combine)
        self._values: deque[V] = deque()

    def insert(self, value: V) -> None:
        """Add the newest value."""
        self._values.append(value)

    def evict(self) -> None:
        """Drop the oldest value."""
        self._values.popleft()

    def query(self) -> V | None:
        """Return the combination of all values."""
        total: V | None = None
        for value in self._values:
            total = self._join(total, value)
        return total

    def __len__(self) -> int:
        return len(self._values)


class SubtractOnEvict(Kernel[V]):
    """Keep the total and take evicted values out of it: O(1), needs an *exact* inverse.

    Integers, counts and bit sets by xor qualify. Doubles do not: what was rounded away does not come back, so the total
    drifts, and after one infinity or NaN it is lost for good.

    >>> window = SubtractOnEvict(lambda a, b: a + b, invert=lambda total, oldest: total - oldest)
    >>> for number in (1, 2, 4): window.insert(number)
    >>> window.evict(); window.query()
    6
    """

    def __init__(self, combine: Callable[[V, V], V], invert: Callable[[V, V], V]) -> None:
        super().__init__(combine)
        self._invert = invert
        self._values: deque[V] = deque()
        self._total: V | None = None

    def insert(self, value: V) -> None:
        """Add the newest value."""
        self._values.append(value)
        self._total = self._join(self._total, value)

    def evict(self) -> None:
        """Drop the oldest value."""
        oldest = self._values.popleft()
        assert self._total is not None
        self._total = self._invert(self._total, oldest) if self._values else None

    def query(self) -> V | None:
        """Return the total."""
        return self._total

    def __len__(self) -> int:
        return len(self._values)


class TwoStacks(Kernel[V]):
    """A back stack with its total, a front stack of running suffixes: O(1) amortised, O(n) when it flips.

    When the front is empty, the back is turned over: its values become suffix combinations, the oldest on top. (The
    variant that keeps only raw values in the back.)

    >>> window = TwoStacks(max)
    >>> for number in (5, 1, 3): window.insert(number)
    >>> window.evict(); window.query()
    3
    """

    def __init__(self, combine: Callable[[V, V], V]) -> None:
        super().__init__(combine)
        self._front: list[V] = []  # the last is the oldest: it and everything newer in the front, combined
        self._back: list[V] = []
        self._back_total: V | None = None

    def insert(self, value: V) -> None:
        """Add the newest value."""
        self._back.append(value)
        self._back_total = self._join(self._back_total, value)

    def evict(self) -> None:
        """Drop the oldest value; flip if it is in the back."""
        if not self._front:
            suffix: V | None = None
            while self._back:
                suffix = self._join(self._back.pop(), suffix)
                assert suffix is not None
                self._front.append(suffix)
            self._back_total = None
        self._front.pop()

    def query(self) -> V | None:
        """Combine the front's top with the back's total."""
        return self._join(self._front[-1] if self._front else None, self._back_total)

    def __len__(self) -> int:
        return len(self._front) + len(self._back)


class DabaLite(Kernel[V]):
    """Two-stacks whose flip is spread over the steps before it: at most a few combines per step, always.

    One queue, cut by pointers F <= L <= R <= A <= B <= E (Tangwongsan, Hirzel and Schneider 2021). Where a value stands
    says what is stored there:

        [F, L)  the combination of it up to B           the part of the front that is ready
        [L, R)  the combination of it up to R           being extended to B, one a step, by `R .. B`
        [R, A)  the raw value                           being turned into suffixes, one a step, from the right
        [A, B)  the combination of it up to B
        [B, E)  the raw value                           the back, whose combination is kept apart

    >>> window = DabaLite(lambda a, b: a + b)
    >>> for letter in "abcd": window.insert(letter)
    >>> window.evict(); window.query()
    'bcd'
    """

    def __init__(self, combine: Callable[[V, V], V]) -> None:
        super().__init__(combine)
        self._ring: list[V | None] = [None] * 8  # values by number modulo its length, which doubles when full
        self._f = self._l = self._r = self._a = self._b = self._e = 0
        self._middle: V | None = None  # R .. B
        self._back: V | None = None  # B .. E

    def insert(self, value: V) -> None:
        """Add the newest value."""
        if self._e - self._f == len(self._ring):
            self._grow()
        self._ring[self._e % len(self._ring)] = value
        self._e += 1
        self._back = self._join(self._back, value)
        self._fix()

    def evict(self) -> None:
        """Drop the oldest value."""
        if self._f == self._e:
            raise IndexError("evict from an empty window")
        self._ring[self._f % len(self._ring)] = None
        self._f += 1
        self._fix()

    def query(self) -> V | None:
        """Combine the front with the back."""
        return self._join(self._at(self._f) if self._f < self._b else None, self._back)

    def __len__(self) -> int:
        return self._e - self._f

    def _fix(self) -> None:
        """Restore |front| - |back| = |L .. B| + 1: each step moves L on by one, and at L = B the back is taken over."""
        if self._f == self._b:  # nothing in front: at most one value, which is its own suffix
            self._l = self._r = self._a = self._b = self._e
            self._middle = self._back = None
            return
        if self._l == self._b:  # flip: the whole front is ready up to the old B, the back is raw
            self._l, self._r = self._f, self._b
            self._a = self._b = self._e
            self._middle, self._back = self._back, None
        if self._l == self._r:  # nothing left to turn over: [A, B) are suffixes already
            self._l, self._r, self._a = self._l + 1, self._r + 1, self._a + 1
            return
        self._set(self._l, self._join(self._at(self._l), self._middle))
        self._l += 1
        self._a -= 1
        if self._a + 1 < self._b:
            self._set(self._a, self._join(self._at(self._a), self._at(self._a + 1)))

    def _at(self, number: int) -> V | None:
        return self._ring[number % len(self._ring)]

    def _set(self, number: int, value: V | None) -> None:
        self._ring[number % len(self._ring)] = value

    def _grow(self) -> None:
        values = [self._at(number) for number in range(self._f, self._e)]
        larger: list[V | None] = [None] * (2 * len(self._ring))
        for number, value in zip(range(self._f, self._e), values, strict=True):
            larger[number % len(larger)] = value
        self._ring = larger


class MonotonicDeque(Kernel[V]):
    """For selective functions (the result is one of its arguments: min, max, arg_min): O(1) amortised, O(n) worst.

    A value that the newest one beats can never win again and is dropped; ties keep the older, if `combine(older,
    newer)` returns `older` then.

    >>> window = MonotonicDeque(min)
    >>> for number in (2, 5, 3): window.insert(number)
    >>> window.evict(); window.query(), window.held
    (3, 1)
    """

    def __init__(self, combine: Callable[[V, V], V]) -> None:
        super().__init__(combine)
        self._candidates: deque[tuple[int, V]] = deque()
        self._first = self._next = 0

    def insert(self, value: V) -> None:
        """Add the newest value; drop what it beats."""
        while self._candidates and self._combine(self._candidates[-1][1], value) is not self._candidates[-1][1]:
            self._candidates.pop()
        self._candidates.append((self._next, value))
        self._next += 1

    def evict(self) -> None:
        """Drop the oldest value."""
        if self._first == self._next:
            raise IndexError("evict from an empty window")
        if self._candidates[0][0] == self._first:
            self._candidates.popleft()
        self._first += 1

    def query(self) -> V | None:
        """Return the best of those that are left."""
        return self._candidates[0][1] if self._candidates else None

    @property
    def held(self) -> int:
        """How many values are kept: those that can still win."""
        return len(self._candidates)

    def __len__(self) -> int:
        return self._next - self._first
