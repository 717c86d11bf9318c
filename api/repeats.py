"""Requests that may be repeated: each with an Idempotency-Key has its effect once."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Request, Response

from nova_workers.contracts.bodies import Body
from nova_workers.contracts.runs import RequestKey
from nova_workers.ledger.in_doubt import doubtful, write_once

from .state import state_of
from .submitting import IdempotencyKey, request_key

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Repeats:
    """The idempotency key of a request, if it has one, and its response's headers."""

    request: Request
    response: Response
    key: str | None

    def bound_to(self, body: Body | None) -> RequestKey | None:
        """Return the key with the hash of what is requested; None without a key."""
        ttl_s = state_of(self.request).services.settings.runs.idempotency_ttl_s
        return request_key(self.key, self.request.url.path, body, ttl_s=ttl_s)

    async def once(self, what: str, write: Callable[[], Awaitable[tuple[T, bool]]]) -> T:
        """Write what a request makes, and return it.

        Args:
            what: What it makes.
            write: Returns it, and whether an earlier request with the key made it. With a key, it is called again if
                the commit is not confirmed.

        Raises:
            NovaError: As `write`.
        """
        made, is_replay = await written_once(what, self.key, write)
        self.mark(is_replay)
        return made

    def mark(self, is_replay: bool) -> None:
        """Say in the response whether an earlier request with the key had the effect."""
        if is_replay:
            self.response.headers["idempotent-replayed"] = "true"


async def written_once(
    what: str, key: str | RequestKey | None, write: Callable[[], Awaitable[tuple[T, bool]]]
) -> tuple[T, bool]:
    """Write what a request makes, and return it, and whether an earlier request with the key made it.

    Args:
        what: What it makes.
        key: Of the request.
        write: Returns the same. With a key, it is called again if the commit is not confirmed.

    Raises:
        NovaError: As `write`.
    """
    if key is None:
        return await write()
    in_doubt = False

    async def find() -> None:
        # The key, which `write` takes, is what finds it.
        nonlocal in_doubt
        in_doubt = True

    made, is_replay = await write_once(write, find, doubt=lambda: doubtful(what, key))
    # What a further call finds is of this request: its first commit was not confirmed.
    return made, is_replay and not in_doubt


async def _repeats(request: Request, response: Response, idempotency_key: IdempotencyKey = None) -> Repeats:
    return Repeats(request, response, idempotency_key)


RepeatableRequest = Annotated[Repeats, Depends(_repeats)]
