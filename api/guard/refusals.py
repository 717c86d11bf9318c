"""Requests that were refused for lack of a right, in the audit log: the answer waits for the record.

A caller may repeat such requests as often as its rate permits, so not each of them becomes a record: within a minute
the same request of a key is recorded once, and once more with how often it was repeated.
"""

import asyncio
from dataclasses import dataclass, field
from typing import cast

import structlog
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from nova_workers.base.errors import Forbidden, NovaError
from nova_workers.domain.audit.sql.listing import record_act
from nova_workers.ledger.auditing import acting_as
from nova_workers.ledger.database import Database
from nova_workers.ledger.visibility import all_tenants

from ..auth import Caller, caller_of
from ..errors import problem_response

_WINDOW_S = 60.0
_MOST = 60
"""Different requests of a key that are recorded one by one within a window; the rest of them are counted together."""
_LAST_S = 2.0
"""The time for the last write of a process that stops."""
_MAX_PATH_CHARS = 200
_ALL_OTHERS = "*"

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Window:
    """What a key was refused since the last write: how often each request was repeated."""

    caller: Caller
    repeats: dict[str, int] = field(default_factory=dict[str, int])


class Refusals:
    """Records refused requests of one API process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._windows: dict[str, _Window] = {}

    async def record(self, caller: Caller, method: str, path: str, query: str) -> None:
        """Record a refused request, or count it.

        Args:
            caller: Who made it.
            path: Its path, percent-encoded.
            query: Its query, of which the hash is kept only.

        Raises:
            NovaError: It could not be recorded. It is counted, and recorded with the next ones.
        """
        repeats = self._repeats(caller)
        target = f"{method} {path[:_MAX_PATH_CHARS]}"
        if target in repeats or len(repeats) >= _MOST:
            self._count(caller, target, 1)
            return
        repeats[target] = 0
        try:
            await self._write(caller, [(target, 1)], query)
        except NovaError:
            self._count(caller, target, 1)
            raise

    async def note(self, caller: Caller, scope: Scope) -> None:
        """Record a refused request of HTTP; one that could not be recorded is in the process's log."""
        path = scope.get("raw_path", b"").decode("ascii", "backslashreplace")
        query = scope["query_string"].decode("latin-1")
        try:
            await self.record(caller, scope["method"], path, query)
        except NovaError as failure:
            # The refusal stands.
            _log.warning("api.refusal_not_recorded", key_id=caller.key_id, error=str(failure))

    async def run(self) -> None:
        """Write what was counted, until canceled."""
        while True:
            await asyncio.sleep(_WINDOW_S)
            await self.write()

    async def write(self) -> None:
        """Write what was counted since the last time, and begin anew."""
        windows, self._windows = self._windows, {}
        for window in windows.values():
            counted = [(target, times) for target, times in window.repeats.items() if times]
            try:
                if counted:
                    await self._write(window.caller, counted)
            except NovaError as error:
                _log.warning("api.refusals_not_counted", key_id=window.caller.key_id, error=str(error))
                for target, times in counted:
                    self._count(window.caller, target, times)

    async def close(self) -> None:
        """Write what was counted, for the last time."""
        try:
            async with asyncio.timeout(_LAST_S):
                await self.write()
        except TimeoutError:
            _log.warning("api.refusals_not_counted")

    def _repeats(self, caller: Caller) -> dict[str, int]:
        """Return the counts of a key that the next write takes."""
        return self._windows.setdefault(caller.key_id, _Window(caller)).repeats

    def _count(self, caller: Caller, target: str, times: int) -> None:
        repeats = self._repeats(caller)
        counted = target if target in repeats or len(repeats) < _MOST else _ALL_OTHERS
        repeats[counted] = repeats.get(counted, 0) + times

    async def _write(self, caller: Caller, refused: list[tuple[str, int]], query: str = "") -> None:
        with all_tenants(), acting_as(caller.actor()):
            async with self._database.transaction() as connection:
                for target, times in refused:
                    arguments = {"request": target, "query": query}
                    await record_act(connection, "access.refused", "request", target, arguments, times=times)


def install_refusals(app: FastAPI, refusals: Refusals) -> None:
    """Record each request that is refused with a 403, before it is answered."""

    async def on_forbidden(request: Request, error: Exception) -> Response:
        caller = caller_of(request.scope)
        if caller is not None:
            await refusals.note(caller, request.scope)
        return problem_response(cast(NovaError, error), instance=request.url.path)

    app.add_exception_handler(Forbidden, on_forbidden)
