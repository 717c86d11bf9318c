"""Ids: ULIDs as the standard has them, in the order in which they were made, and never twice."""

from __future__ import annotations

import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from ulid import ULID

from nova_workers.base.ids import id_at, new_id, new_ulid

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def test_an_id_is_its_kind_and_a_ulid_of_the_present_millisecond() -> None:
    before_ms = time.time_ns() // 1_000_000
    kind, _, text = new_id("run").partition("_")
    made = ULID.from_str(text)
    assert kind == "run"
    assert str(made) == text
    assert before_ms <= made.milliseconds <= time.time_ns() // 1_000_000


def test_the_bound_of_a_moment_is_the_time_of_its_ulids() -> None:
    for ms in (0, 1, 1023, 1024, 1_785_000_000_123, 253_402_300_799_000):
        moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)
        assert id_at("run", moment) == f"run_{str(ULID.from_datetime(moment))[:10]}"


def test_ids_of_one_millisecond_sort_as_they_were_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_785_000_000_123_456_789)
    made = _make(2_000)
    assert made == sorted(set(made))
    assert len({text[:10] for text in made}) == 1


def test_the_randomness_of_each_millisecond_is_new_and_uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter(range(1, 10**9))
    monkeypatch.setattr(time, "time_ns", lambda: next(moments) * 1_000_000)
    made = [new_ulid()[10:] for _ in range(3_200)]
    assert len(set(made)) == len(made)
    for position in range(16):
        counts = Counter(text[position] for text in made)
        # Of each digit 100 are expected, and the standard deviation is 10.
        assert set(counts) == set(_DIGITS)
        assert 30 < min(counts.values()) <= max(counts.values()) < 180


def _make(count: int) -> list[str]:
    return [new_ulid() for _ in range(count)]


def test_threads_never_make_the_same_id() -> None:
    with ThreadPoolExecutor(8) as pool:
        batches = list(pool.map(_make, [2_000] * 8))
    made = [text for batch in batches for text in batch]
    assert len(set(made)) == len(made)
    assert all(batch == sorted(batch) for batch in batches)


def test_a_forked_process_does_not_repeat_the_ids_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_785_000_000_123_456_789)
    first = new_ulid()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, new_ulid().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        of_child = answer.read()
    assert os.waitpid(child, 0)[1] == 0
    of_parent = new_ulid()
    assert first < of_parent
    assert len({first, of_parent, of_child}) == 3
