"""The user functions of the live runs; importable, so that workers get them by name.

Stages that wait stand for calls to something outside, or for computing that this machine has no cores for: what a row
waits is a column of it, made from its index, so that a run is the same in stream time however batches are cut.
"""

from __future__ import annotations

import math
import time
import zlib
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import penstock as ps

Ints = npt.NDArray[np.int64]
ROW_WAITS_S = 0.0004


def rows(index: Ints, random: np.random.Generator) -> dict[str, Any]:
    """Cheap rows that are a function of their index."""
    return {"i": index, "price": 100.0 + (index % 97).astype(np.float64)}


def call_outside(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A stage that waits for something outside: 0.4 ms for each row."""
    time.sleep(ROW_WAITS_S * batch.num_rows)
    return batch


def keyed_call(batch: pa.RecordBatch, state: ps.KeyedState) -> tuple[pa.RecordBatch, ps.KeyedState]:
    """A running sum per key whose every row waits outside: a hot key makes its task late."""
    time.sleep(ROW_WAITS_S * batch.num_rows)
    total = state["total"] + np.bincount(state.slots, weights=np.asarray(batch.column("price")), minlength=len(state))
    return pa.record_batch({"k": batch.column("k"), "so_far": total[state.slots]}), state.update(total=total)


# -- rows that say what they cost ------------------------------------------------------------------


def doubling(index: Ints, random: np.random.Generator, *, half: int) -> dict[str, Any]:
    """Rows that wait 0.4 ms each; from row `half` on twice that.

    >>> doubling(np.array([0, 9, 10]), np.random.default_rng(0), half=10)["wait_us"].tolist()
    [400.0, 400.0, 800.0]
    """
    return {"i": index, "wait_us": ROW_WAITS_S * 1e6 * np.where(index < half, 1.0, 2.0)}


def frames(index: Ints, random: np.random.Generator, *, period: int) -> dict[str, Any]:
    """Frames whose cost rises and falls: thesis 003's lane detection, five times as fast.

    There one replica does 7 to 20 frames per second, over and over; here it is 35 to 100, once in `period` frames. The
    dearest frame comes first.

    >>> [round(1e6 / wait) for wait in frames(np.array([0, 25, 50]), np.random.default_rng(0), period=100)["wait_us"]]
    [35, 68, 100]
    """
    per_s = 67.5 - 32.5 * np.cos(2.0 * math.pi * index / period)
    return {"i": index, "wait_us": 1e6 / per_s}


def serve(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A stage that waits as long as its rows say."""
    time.sleep(float(np.asarray(batch.column("wait_us")).sum()) / 1e6)
    return batch


# -- Mandelbrot (thesis 004, section 6.1.1) --------------------------------------------------------

PIXELS, ITERATIONS = 512, 512  # points of a line, and iterations after which one counts as inside
_LEFT, _BOTTOM, _SIDE = -2.125, -1.5, 3.0  # the part of the plane that is drawn


def lines(index: Ints, random: np.random.Generator, *, first: int, last: int) -> dict[str, Any]:
    """The lines of an image from `first` to below `last`, over and over.

    >>> lines(np.arange(5), np.random.default_rng(0), first=3, last=5)["line"].tolist()
    [3, 4, 3, 4, 3]
    """
    return {"i": index, "line": first + index % (last - first)}


def mandelbrot(batch: pa.RecordBatch, *, height: int) -> pa.RecordBatch:
    """Draw lines: for each point c the least n with |z_n| > 2, z_0 = c, z_n+1 = z_n^2 + c, as a share of 255.

    Lines through the middle of the set cost about twenty times as much as those at the edge of the image.
    """
    line = np.asarray(batch.column("line"))
    c = np.linspace(_LEFT, _LEFT + _SIDE, PIXELS, endpoint=False) + 1j * (_BOTTOM + _SIDE * line[:, None] / height)
    left = np.full(c.size, ITERATIONS, dtype=np.int64)
    at, z, c = np.arange(c.size), c.ravel(), c.ravel()
    for n in range(ITERATIONS):
        gone = z.real * z.real + z.imag * z.imag > 4.0
        if gone.any():  # only what has not escaped goes on
            left[at[gone]] = n
            at, z, c = at[~gone], z[~gone], c[~gone]
            if not len(at):
                break
        z = z * z + c
    shade = (left * 255 // ITERATIONS).astype(np.uint8).reshape(len(line), PIXELS)
    return pa.record_batch({"line": batch.column("line"), "pixels": pa.array([row.tobytes() for row in shade])})


# -- tweets (thesis 001, section 5.1.3) ------------------------------------------------------------

GOOD = ("love", "great", "happy", "win", "thanks")
BAD = ("hate", "awful", "sad", "lose", "late")
PLAIN = ("the", "a", "train", "game", "phone", "we", "today", "is", "at", "new", "show", "they", "on", "was", "of")
_VOCABULARY = np.array(GOOD + BAD + PLAIN)
TWEET_WORDS = 8
TOP = 5


def tweets(index: Ints, random: np.random.Generator) -> dict[str, Any]:
    """Tweets of a few words; the topic is a column of its own."""
    words = _VOCABULARY[random.integers(0, len(_VOCABULARY), (len(index), TWEET_WORDS))]
    return {"i": index, "text": pa.array([" ".join(tweet) for tweet in words])}


def sentiment(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Good words minus bad ones, as -1, 0 or 1; a tweet takes 0.4 ms, as a language model elsewhere would.

    >>> said = pa.record_batch({"i": [1, 2], "topic": [7, 7], "text": ["we love the new phone", "sad show"]})
    >>> sentiment(said).column("mood").to_pylist()
    [1, -1]
    """
    time.sleep(ROW_WAITS_S * batch.num_rows)
    moods = []
    for text in batch.column("text").to_pylist():
        words = text.split()
        moods.append(int(np.sign(sum(word in GOOD for word in words) - sum(word in BAD for word in words))))
    mood = pa.array(moods, pa.int64())
    return pa.record_batch({"i": batch.column("i"), "topic": batch.column("topic"), "mood": mood})


def topics_of(pane: ps.Window) -> dict[int, int]:
    """HotTopics: how often each topic was named in a piece of a window."""
    topics, counts = np.unique(pane["topic"], return_counts=True)
    return dict(zip(topics.tolist(), counts.tolist(), strict=True))


def hottest(parts: list[dict[int, int]], window: ps.Window) -> list[dict[str, int]]:
    """HotTopicsMerger: the topics named most in the whole window, the smaller number first where two are level.

    >>> hottest([{3: 2, 1: 1}, {1: 1, 9: 5}], None)[:2]
    [{'rank': 1, 'topic': 9, 'n': 5}, {'rank': 2, 'topic': 1, 'n': 2}]
    """
    total: dict[int, int] = {}
    for part in parts:
        for topic, n in part.items():
            total[topic] = total.get(topic, 0) + n
    best = sorted(total.items(), key=lambda entry: (-entry[1], entry[0]))[:TOP]
    return [{"rank": rank, "topic": topic, "n": n} for rank, (topic, n) in enumerate(best, 1)]


# -- a live stream of pictures (thesis 001, section 5.1.1) -----------------------------------------

FEEDS, HIGH, WIDE = 4, 24, 32  # a row has one picture of each of four feeds
SHOWN = 256  # pictures before they come round again: making them is no part of what is measured


@cache
def camera() -> pa.Array:
    """What the four cameras of a group have shown, encoded: ramps that move, and noise. It comes round again."""
    moment, noise = np.arange(SHOWN), np.random.default_rng(1).integers(0, 4, (SHOWN, FEEDS, HIGH, WIDE))
    ramp = (moment[:, None, None, None] + 5 * np.arange(HIGH)[:, None] + 3 * np.arange(WIDE)) % 200
    return pa.array([_squeezed(group) for group in (ramp + noise).astype(np.uint8)])


def pictures(index: Ints, random: np.random.Generator) -> dict[str, Any]:
    """One encoded picture of each of the four feeds of a group."""
    return {"i": index, "data": camera().take(pa.array(index % SHOWN))}


def decode(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Encoded pictures to pixels."""
    return _with_data(batch, [_unsqueezed(data, (FEEDS, HIGH, WIDE)).tobytes() for data in _data(batch)])


def overlay(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Merge: the four pictures of a row as one, two by two, with a bright line of text's height that moves along."""
    shown = np.frombuffer(b"".join(_data(batch)), np.uint8).reshape(-1, 2, 2, HIGH, WIDE)
    merged = shown.transpose(0, 1, 3, 2, 4).reshape(-1, 2 * HIGH, 2 * WIDE).copy()
    marquee = (np.arange(2 * WIDE) + np.asarray(batch.column("i"))[:, None]) % 16 < 8
    merged[:, -6:, :] = np.where(marquee[:, None, :], 255, merged[:, -6:, :] // 2)
    return _with_data(batch, [picture.tobytes() for picture in merged])


def encode(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Pixels to an encoded picture."""
    shown = np.frombuffer(b"".join(_data(batch)), np.uint8).reshape(-1, 2 * HIGH, 2 * WIDE)
    return _with_data(batch, [_squeezed(picture) for picture in shown])


def pack(batch: pa.RecordBatch) -> pa.RecordBatch:
    """What goes out on the wire: number, length and checksum, then the picture."""
    packed = []
    for number, data in zip(batch.column("i").to_pylist(), _data(batch), strict=True):
        head = np.array([number, len(data), zlib.crc32(data)], dtype="<u8").tobytes()
        packed.append(head + data)
    return _with_data(batch, packed)


def unpacked(packet: bytes) -> npt.NDArray[np.uint8]:
    """The picture of a packet, checked: what a viewer does."""
    _, length, checksum = np.frombuffer(packet[:24], "<u8").tolist()
    data = packet[24:]
    if len(data) != length or zlib.crc32(data) != checksum:
        raise ValueError("a damaged packet")
    return _unsqueezed(data, (2 * HIGH, 2 * WIDE))


def _squeezed(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Differences from pixel to pixel along a line, then packed."""
    return zlib.compress(np.diff(pixels, axis=-1, prepend=np.uint8(0)).tobytes(), 1)


def _unsqueezed(data: bytes, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    return np.cumsum(np.frombuffer(zlib.decompress(data), np.uint8).reshape(shape), axis=-1, dtype=np.uint8)


def _data(batch: pa.RecordBatch) -> list[bytes]:
    found: list[bytes] = batch.column("data").to_pylist()
    return found


def _with_data(batch: pa.RecordBatch, data: list[bytes]) -> pa.RecordBatch:
    return batch.set_column(batch.schema.get_field_index("data"), "data", pa.array(data, pa.binary()))
