"""Accepts batches of messages, each with its own outcome."""

import asyncio
from collections.abc import Sequence
from itertools import groupby

from nova_workers.base.errors import NovaError
from nova_workers.contracts.http.wire import RunBatchItem, RunBatchOutcome
from nova_workers.ledger.write_record import own_record

from .acceptance import MessageAcceptance
from .errors import problem, true_outcome

_AT_ONCE = 4
"""Messages that are submitted at the same time: one request must not take all connections of the process."""

_PATH = "/v1/runs"
"""The path for idempotency keys: a key names the same run in a batch and in a single request."""


async def accept_batch(acceptance: MessageAcceptance, items: Sequence[RunBatchItem]) -> list[RunBatchOutcome]:
    """Submit each message separately and return the outcomes in order.

    Messages of one thread are submitted sequentially, so they are queued in the order of the batch. So are messages
    with the same idempotency key.
    """
    room = asyncio.Semaphore(_AT_ONCE)
    outcomes: dict[int, RunBatchOutcome] = {}

    async def submit_in_order(places: Sequence[int]) -> None:
        for place in places:
            async with room:
                outcomes[place] = await _outcome(acceptance, items[place])

    await asyncio.gather(*(submit_in_order(places) for places in _lines(items)))
    return [outcomes[place] for place in range(len(items))]


def _lines(items: Sequence[RunBatchItem]) -> list[list[int]]:
    """Return the places of the items that are submitted one after the other."""

    def line(place: int) -> str:
        item = items[place]
        return item.thread_id or item.idempotency_key or f"{place}"

    return [list(places) for _, places in groupby(sorted(range(len(items)), key=line), key=line)]


async def _outcome(acceptance: MessageAcceptance, item: RunBatchItem) -> RunBatchOutcome:
    with own_record():
        try:
            view = await acceptance.submit_one(item, path=_PATH, idempotency_key=item.idempotency_key)
        except NovaError as error:
            refusal = problem(true_outcome(error))
            return RunBatchOutcome(status=refusal.status, problem=refusal)
    return RunBatchOutcome(status=202, run=view)
