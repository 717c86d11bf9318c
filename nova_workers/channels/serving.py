"""Serves a channel by one process of several: that which holds its lease."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import structlog

from nova_workers.base.errors import Forbidden, NovaError, Unauthenticated
from nova_workers.base.stopping import stop_tasks
from nova_workers.channels.inbox import Home, InboxFeed
from nova_workers.channels.journal import Journal
from nova_workers.channels.packages import InboundParts, find_channel, make_channel, own_environment
from nova_workers.channels.relay import Relay
from nova_workers.client.client import NovaClient
from nova_workers.client.retry import Retry

_log = structlog.get_logger(__name__)

PATIENCE: Final = Retry(attempts=10_000, base_s=0.5, max_s=30.0)
"""The patience with replies of a channel with a journal: about three days. It has forgotten the update by then, so
nothing else would bring it again."""
_AGAIN_S: Final = 15.0


async def serve_exclusively(journal: Journal, channel: str, relay: Callable[[], Awaitable[None]]) -> None:
    """Wait for a lease, serve the channel while it lasts, and begin again; until the channel ends.

    Args:
        journal: The lease.
        channel: The channel's name, for the log.
        relay: Serves it until it ends or is canceled.

    Raises:
        Unauthenticated: The API does not know the key.
        Forbidden: The key lacks a scope.
    """
    while True:
        await journal.acquire()
        serving = asyncio.ensure_future(relay())
        keeping = asyncio.create_task(journal.keep(), name=f"lease-{channel}")
        try:
            done, _ = await asyncio.wait({serving, keeping}, timeout=_AGAIN_S, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                journal.has_recovered()
                await asyncio.wait({serving, keeping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await stop_tasks([serving, keeping])
            for task in (serving, keeping):
                if not task.cancelled() and (error := task.exception()) is not None:
                    journal.has_stopped(_words(error), _AGAIN_S)
            await journal.release()
        errors = [task.exception() for task in (serving, keeping) if not task.cancelled()]
        if not serving.cancelled() and errors == [None] * len(errors):
            return
        for error in errors:
            if error is not None:
                await _pause(channel, error)


async def _pause(channel: str, error: BaseException) -> None:
    """Wait after a fault, for its cause to be removed."""
    match error:
        case Unauthenticated() | Forbidden():
            raise error
        case NovaError():
            _log.error("channel.stopped", channel=channel, error=error.message, again_s=_AGAIN_S)
        case _:
            _log.error("channel.stopped", channel=channel, again_s=_AGAIN_S, exc_info=error)
    await asyncio.sleep(_AGAIN_S)


def _words(error: BaseException) -> str:
    """Return a fault in words for people; what code of a package raises may have secrets of its own."""
    return error.message if isinstance(error, NovaError) else f"It stopped: {type(error).__name__}. See its log."


async def serve_package(
    client: NovaClient,
    entry: str,
    *,
    name: str,
    agent_id: str,
    senders: Collection[str],
    deliveries_to: str | None,
) -> None:
    """Serve a channel of an installed package until it ends or is canceled. Any number of processes may do so.

    Args:
        client: Of the tenant. Its key needs the scopes `runs` and `channels`; `workspace` for deliveries.
        entry: The channel's entry point.
        name: Its name in the fleet.
        agent_id: The agent of new conversations.
        senders: Who may write; an asterisk permits everyone.
        deliveries_to: The conversation that gets deliveries and questions of other runs; None is none.

    Raises:
        ConfigurationError: There is no such channel, or it cannot be used.
        Unauthenticated: The API does not know the key.
        Forbidden: The key lacks a scope.
    """
    make = find_channel(entry)
    journal = Journal(client, f"channel:{name}")
    parts = InboundParts(name, own_environment(), journal, journal)
    # Before the lease, which may be another process's for weeks.
    await make_channel(make, parts).close()

    async def relay() -> None:
        await Relay(
            client,
            make_channel(make, parts),
            agent_id=agent_id,
            senders=senders,
            patience=PATIENCE,
            journal=journal,
            inbox=InboxFeed(client, journal, name, Home(deliveries_to)),
        ).run()

    await serve_exclusively(journal, name, relay)
