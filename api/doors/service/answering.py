"""Answers to what a run asks, results of its caller's calls, and cancels."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from nova_workers.base.errors import IllegalTransition, NotFound
from nova_workers.contracts.http.thread_states import ThreadStateReplace
from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.runs import RequestKey
from nova_workers.contracts.waits import RunAnswer, ToolResult
from nova_workers.domain.runs.rules.waiting import Taken, Within
from nova_workers.domain.threads.rules.states import offer_state
from nova_workers.ledger.auditing import act_as
from nova_workers.ledger.database import Connection

from ...submitting import given_results
from .runs import Runs

_T = TypeVar("_T")


class Answering(Runs):
    """What goes on with runs, or ends them. A message that joined another run's turn goes on and ends with that run."""

    __slots__ = ()

    async def answer(self, run_id: str, answer: RunAnswer, *, within: Within | None = None) -> RunView:
        """Answer a question of a run, or permit or refuse a call. The same may be given again. It is in the audit log.

        Raises:
            NovaError: As `Waiting.answer`.
        """
        act_as(self.caller.actor())
        waiting, tenant_id = self.state.services.waiting, self.caller.tenant_id

        async def send(run_id: str) -> RunView:
            return await waiting.answer(tenant_id, run_id, answer.wait_id, answer, within=within)

        return await self._by_answering(run_id, send)

    async def give(
        self,
        run_id: str,
        *,
        results: Sequence[ToolResult] = (),
        answers: Sequence[RunAnswer] = (),
        key: RequestKey | None = None,
        made: str = "",
        within: Within | None = None,
    ) -> str:
        """Give a run results of calls that its caller executed, and answers, all or none. The same may be given again.

        Args:
            run_id: The run that waits.
            results: At most one for each call.
            answers: With their waits. They are in the audit log.
            key: Of the request. With it, a repeated one gives nothing.
            made: What the protocol calls the rest of the run, which a repeated request finds by `earlier`.
            within: Writes what the request has beside, as of `Waiting.give`.

        Returns:
            `made`, or what an earlier request with the key made.

        Raises:
            NovaError: As `Waiting.give`.
        """
        if answers:
            act_as(self.caller.actor())
        given = await given_results(results, max_chars=self.state.services.settings.api.max_message_chars)
        waiting, tenant_id = self.state.services.waiting, self.caller.tenant_id
        named = {answer.wait_id or "": answer for answer in answers}

        async def send(run_id: str) -> Taken:
            return await waiting.give(
                tenant_id, run_id, results=given, answers=named, request=key, made_id=made, within=within
            )

        return (await self._by_answering(run_id, send)).made_id

    def offering(self, thread_id: str, offered: ThreadStateReplace) -> Within:
        """Return the writer, for an answer or results, of the state document that a client has, as `offer_state`.

        The change is in the audit log.
        """
        act_as(self.caller.actor())

        async def offer(connection: Connection) -> None:
            await offer_state(connection, self.caller.tenant_id, thread_id, offered.state, version=offered.version)

        return offer

    async def cancel(self, run_id: str) -> RunView:
        """Cancel a run. Canceling twice changes nothing. It is in the audit log.

        Raises:
            NotFound: No such run in this tenant.
            IllegalTransition: It ended otherwise.
        """
        act_as(self.caller.actor())
        canceller, tenant_id = self.state.services.canceller, self.caller.tenant_id
        return await self._by_answering(run_id, lambda run_id: canceller.cancel(tenant_id, run_id))

    async def _by_answering(self, run_id: str, change: Callable[[str], Awaitable[_T]]) -> _T:
        """Make a change of a run, or of the one that answers it if its message joined that run's turn."""
        try:
            return await change(run_id)
        except (IllegalTransition, NotFound):
            run = await self.run(run_id)
            if run.id == run_id:
                raise
            return await change(run.id)
