"""Gathers operations that tasks of the library want at once into one step of the journal."""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeVar

from nova_workers.sdk.durable import Journal, Wanted

T = TypeVar("T")

_TURNS_OF_LOOP: Final = 50
"""How long an operation waits for others: calls of one response begin right after one another, on any machine."""
_MISSING_S: Final = 1.0
"""How long it waits for those that the journal has beside it. Nothing is executed meanwhile, so they come at once."""


class Together:
    """Executes operations of several tasks. A function may want several at once only by one call of the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._wanted: list[tuple[Wanted[Any], asyncio.Future[Any]]] = []
        self._arrived = asyncio.Event()
        self._executing: asyncio.Task[None] | None = None

    async def execute(self, wanted: Wanted[T]) -> T:
        """Return the value of an operation. See `Wanted`."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._wanted.append((wanted, done))
        self._arrived.set()
        if self._executing is None or self._executing.done():
            self._executing = asyncio.create_task(self._execute())
        return await done

    async def close(self) -> None:
        """Stop."""
        if self._executing is not None:
            self._executing.cancel()
            await asyncio.wait({self._executing})

    async def _execute(self) -> None:
        while self._wanted:
            batch = await self._batch()
            try:
                entry = await self._journal.execute([wanted for wanted, _ in batch])
            except BaseException as error:
                for _, done in batch:
                    if not done.done():
                        done.set_exception(error) if isinstance(error, Exception) else done.cancel()
                raise
            for at, (wanted, done) in enumerate(batch):
                if done.done():
                    continue
                try:
                    done.set_result(wanted.read(entry, at))
                except Exception as error:
                    done.set_exception(error)

    async def _batch(self) -> list[tuple[Wanted[Any], asyncio.Future[Any]]]:
        for _ in range(_TURNS_OF_LOOP):
            await asyncio.sleep(0)
        recorded = self._journal.recorded()
        if recorded is None:
            batch, self._wanted = self._wanted, []
            return batch
        labels = [each.operation.label for each in recorded.finished]
        await self._wait_for(len(labels))
        batch = [found for label in labels if (found := self._take(label)) is not None]
        # Others than the journal has: it fails the run, and names them.
        return batch if len(batch) == len(labels) else [*batch, *self._drain()]

    async def _wait_for(self, count: int) -> None:
        try:
            async with asyncio.timeout(_MISSING_S):
                while len(self._wanted) < count:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return

    def _take(self, label: str) -> tuple[Wanted[Any], asyncio.Future[Any]] | None:
        for at, (wanted, _) in enumerate(self._wanted):
            if wanted.operation.label == label:
                return self._wanted.pop(at)
        return None

    def _drain(self) -> list[tuple[Wanted[Any], asyncio.Future[Any]]]:
        rest, self._wanted = self._wanted, []
        return rest
