"""Search by words and parts of words, and the insertion of a text, beside many texts of one agent."""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from nova_workers.domain.search.sql.messages import MessageFilter, search_messages
from tests.bench.figures import percentile
from tests.bench.growth.costs import Cost, Operation, repeated
from tests.bench.growth.ground import Ground

_INDEX = "ix_message_texts__parts"
_PAGES = Path(__file__).resolve().parents[3] / "docs"
_NAMES = 20_000
_SYLLABLES = [first + second for first in "bcdfghjklmnprstvwz" for second in ("a", "er", "in", "o", "un", "ei", "ta")]
_HAN: Final = tuple(chr(0x4E00 + at * 7) for at in range(2_500))
_CHUNK = 5_000

_GROWS = "It reads the lists of the words and trigrams, and up to 1,000 texts that have a word, 500 that have a part."
_PART = Operation("search for a part of a number", _GROWS)
_NAME = Operation("search for a part of a word", _GROWS)
_UNSPACED = Operation("search for a Chinese word", _GROWS)
_SENTENCE = Operation("search with a sentence of common words", _GROWS)
_P95 = Operation("95th percentile of these", _GROWS)
_SAVE = Operation("insert the text of a message")
_SAVE_WITHOUT = Operation("the same without the index of parts")
_BUILD = Operation("build the index of parts, for each")
_BYTES = Operation("size of the index of parts, for each byte of text", unit="bytes")

_THREADS = """
INSERT INTO threads (id, tenant_id, agent_id)
SELECT 'thr_text' || i, :tenant_id, 'nova' FROM generate_series(:before::int, :size::int - 1) AS i
"""
_TURNS = """
INSERT INTO turns (id, tenant_id, thread_id, agent_id)
SELECT 'turn_text' || i, :tenant_id, 'thr_text' || i, 'nova'
  FROM generate_series(:before::int, :size::int - 1) AS i
"""
_MESSAGES = """
INSERT INTO messages (id, tenant_id, thread_id, turn_id, seq, kind, role, content)
SELECT 'msg_text' || i, :tenant_id, 'thr_text' || i, 'turn_text' || i, 0, 'query', 'user', '[]'
  FROM generate_series(:before::int, :size::int - 1) AS i
"""
_TEXTS = """
INSERT INTO message_texts (message_id, tenant_id, agent_id, thread_id, role, content, said_at)
SELECT 'msg_text' || (:start::int + n - 1), :tenant_id, 'nova', 'thr_text' || (:start::int + n - 1), 'user', text, now()
  FROM unnest(:texts::text[]) WITH ORDINALITY said (text, n)
"""
_INDEXES = """
SELECT indexname AS name, indexdef AS definition FROM pg_indexes
 WHERE tablename = 'message_texts' AND indexdef ~ 'USING gin'
"""
_SIZE = f"""
SELECT pg_relation_size('{_INDEX}')::float8 / sum(octet_length(content)) FROM message_texts
"""


@dataclass(frozen=True, slots=True)
class _Speech:
    """What is said: the words of our pages, as often as there, and names; a number, a path and an address.

    A tenth of it is Chinese, of words by Zipf's law.
    """

    chance: random.Random
    words: Sequence[str]
    weights: Sequence[float]
    unspaced: Sequence[str]
    unspaced_weights: Sequence[float]

    @classmethod
    def new(cls) -> _Speech:
        chance = random.Random(1)
        pages = " ".join(page.read_text("utf-8") for page in sorted(_PAGES.rglob("*.md")))
        counts = Counter(re.findall("[a-z]{2,}", pages.lower())).most_common()
        names = ["".join(chance.choices(_SYLLABLES, k=chance.randint(2, 4))) for _ in range(_NAMES)]
        unspaced = ["".join(chance.choices(_HAN, k=2)) for _ in range(_NAMES)]
        return cls(
            chance,
            [*(word for word, _ in counts), *names],
            list(itertools.accumulate([*(count for _, count in counts), *itertools.repeat(1, _NAMES)])),
            unspaced,
            list(itertools.accumulate(1 / (place + 1) for place in range(_NAMES))),
        )

    def text(self, number: int) -> str:
        chance = self.chance
        if number % 10 == 0:
            return "".join(chance.choices(self.unspaced, cum_weights=self.unspaced_weights, k=chance.randint(5, 25)))
        said = chance.choices(self.words, cum_weights=self.weights, k=chance.randint(8, 50))
        one, two = chance.choice(self.words), chance.choice(self.words)
        return f"{' '.join(said)} ORD-{number:09}X /srv/{one}/{two}_v{number % 9}.pdf {two}.{one}@example.com"

    def rare_word(self) -> str:
        """Return a word that few texts have, of six letters or more."""
        return next(word for word in iter(lambda: self.chance.choice(self.words[2_000:]), "") if len(word) > 5)


async def measure_texts(ground: Ground, sizes: Sequence[int]) -> AsyncGenerator[Cost]:
    """Make as many messages with their texts."""
    before, speech = 0, _Speech.new()
    definitions = {row["name"]: row["definition"] for row in await ground.database.fetch(_INDEXES)}
    for size in sizes:
        # An index that is built at once takes a tenth of the time of one that grows.
        for name in definitions:
            await ground.database.execute(f"DROP INDEX {name}")
        statements = {"threads": _THREADS, "turns": _TURNS, "messages": _MESSAGES}
        await ground.write(statements, tenant_id=ground.tenant_id, before=before, size=size)
        for start in range(before, size, _CHUNK):
            texts = [speech.text(number) for number in range(start, min(start + _CHUNK, size))]
            await ground.write(
                {"message_texts": _TEXTS}, vacuum=False, tenant_id=ground.tenant_id, start=start, texts=texts
            )
        async with ground.database.transaction() as connection:
            await connection.execute("SET LOCAL maintenance_work_mem = '512MB'")
            for name in definitions.keys() - {_INDEX}:
                await connection.execute(definitions[name])
            began_s = time.perf_counter()
            await connection.execute(definitions[_INDEX])
            yield Cost.of(_BUILD, size, [(time.perf_counter() - began_s) / size])
        await ground.database.execute("VACUUM ANALYZE message_texts")
        ratio = await ground.database.fetchval(_SIZE)
        yield Cost(_BYTES, size, ratio, ratio)
        before = size
        queries: dict[Operation, Callable[[], str]] = {
            _PART: lambda size=size: f"{speech.chance.randrange(size):09}"[-7:],
            _NAME: lambda: speech.rare_word()[1:],
            _UNSPACED: lambda: speech.chance.choice(speech.unspaced[100:]),
            _SENTENCE: lambda: " ".join([*speech.chance.sample(speech.words[:20], 6), speech.rare_word()]),
        }
        all_s: list[float] = []
        for operation, query in queries.items():
            taken_s = await repeated(lambda query=query: _search(ground, query()), ground.repeats)
            all_s += taken_s
            yield Cost.of(operation, size, taken_s)
        yield Cost.of(_P95, size, [percentile(all_s, 0.95)])
        for operation, index in ((_SAVE, None), (_SAVE_WITHOUT, _INDEX)):
            save = partial(_save, ground, speech, size, without=index)
            yield Cost.of(operation, size, await repeated(save, ground.repeats))


async def _search(ground: Ground, text: str) -> float:
    began_s = time.perf_counter()
    async with ground.database.transaction() as transaction:
        await search_messages(transaction, MessageFilter(ground.tenant_id, "nova"), text, limit=10)
    return time.perf_counter() - began_s


class _UndoneError(Exception):
    """Rolls back the transaction that it is raised in."""


async def _save(ground: Ground, speech: _Speech, size: int, *, without: str | None) -> float:
    """Replace the texts of two messages, and undo it. Only the second insertion is measured.

    Args:
        ground: Has the texts.
        speech: Makes the new ones.
        size: How many texts there are.
        without: An index that they are not inserted into.
    """
    taken_s = 0.0
    with contextlib.suppress(_UndoneError):
        async with ground.database.transaction() as connection:
            if without is not None:
                await connection.execute(f"DROP INDEX {without}")
            for number in speech.chance.sample(range(1, size), 2):
                await connection.execute(f"DELETE FROM message_texts WHERE message_id = 'msg_text{number}'")
                texts = [speech.text(number)]
                began_s = time.perf_counter()
                # The first one makes the statement's plan.
                await connection.execute(_TEXTS, tenant_id=ground.tenant_id, start=number, texts=texts)
                taken_s = time.perf_counter() - began_s
            raise _UndoneError
    return taken_s
