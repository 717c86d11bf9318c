"""Ends waits by an answer, the end of a child run, or a deadline. The run is then queued again."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import NamedTuple

import orjson
import structlog

from nova_workers.base.errors import Conflict, IllegalTransition, InvalidInput, Unavailable, missing
from nova_workers.contracts.content import ContentBlock, JsonObject, storable, text_block, text_of
from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.runs import RequestKey
from nova_workers.contracts.waits import (
    ANSWERABLE,
    Answer,
    AskAgent,
    AskApproval,
    AskUser,
    AwaitMessages,
    CallClientTool,
    Pause,
)
from nova_workers.domain.idempotency.sql import once
from nova_workers.domain.orchestrations.sql.permissions import allow_always
from nova_workers.domain.runs.rules.parents import child_resolution
from nova_workers.domain.runs.sql.cancel import request_cancel, run_status
from nova_workers.domain.runs.sql.reads import get_run
from nova_workers.domain.tool_policy.rules import lasting_call
from nova_workers.domain.waits.sql import records as ledger
from nova_workers.domain.waits.sql.records import Resolution, Wait
from nova_workers.ledger.database import Connection
from nova_workers.ledger.work import UnitOfWork, Work
from nova_workers.ledger.write_record import name_outcome

Within = Callable[[Connection], Awaitable[None]]
"""Writes, in the transaction that ends a wait, what came with its answer: the run finds it when it goes on."""

_log = structlog.get_logger(__name__)

_BATCH = 200
_LOOK_BACK = timedelta(hours=1)
"""How far back the frequent sweep looks for ended child runs; the thorough one looks at all."""


@dataclass(frozen=True, slots=True)
class GivenResult:
    """The result of a call that the caller of a run executed."""

    tool_call_id: str
    content: Sequence[ContentBlock]
    is_error: bool


class Taken(NamedTuple):
    """A run that was given what it waited for.

    Attributes:
        made_id: The name that the request gave to what it made; of an earlier request with its key, that one's.
    """

    run: RunView
    made_id: str


class _Changed(Exception):
    """Rolls back: a wait is not as it was read."""


class Waiting:
    """Resolves the waits of runs. One object per process."""

    def __init__(self, work: Work) -> None:
        self._work = work

    async def answer(
        self, tenant_id: str, run_id: str, wait_id: str | None, answer: Answer, *, within: Within | None = None
    ) -> RunView:
        """Answer a wait of a run, and return the run.

        The answer that a wait has is taken again, so that a request may be repeated.

        Args:
            tenant_id: The run's tenant.
            wait_id: The wait; may be None if only one wait can be answered, or if the run had only one.
            answer: Text for a question, a decision for an approval.
            within: Is called unless the answer was given before.

        Raises:
            NotFound: No such run.
            Conflict: Several waits can be answered and `wait_id` is None.
            IllegalTransition: The wait has another answer already, or the run does not wait.
            InvalidInput: The answer does not fit the request.
        """
        while True:
            wait = await self._find(tenant_id, run_id, wait_id, answer)
            name_outcome(f"/v1/runs/{run_id}", run_id=run_id, wait_id=wait.id)
            if wait.status != "open":
                async with self._work.database.connection() as connection:
                    return await get_run(connection, tenant_id, run_id)
            run = await self._try_answer(wait, answer, within)
            if run is not None:
                return run
            # It ended since it was read, which the next read refuses, or it was passed to an agent, which happens once.

    async def give(
        self,
        tenant_id: str,
        run_id: str,
        *,
        results: Sequence[GivenResult] = (),
        answers: Mapping[str, Answer] | None = None,
        request: RequestKey | None = None,
        made_id: str = "",
        within: Within | None = None,
    ) -> Taken:
        """Give a run results of calls that its caller executed, and answers, all or none of them.

        A result or an answer that was given before is taken again if it is the same, so that a request may be repeated.

        Args:
            tenant_id: The run's tenant.
            run_id: The run that waits.
            results: At most one for each call.
            answers: By the ids of their waits.
            request: The key of the request. If an earlier request has it, nothing is given.
            made_id: What the request made, to be kept under its key.
            within: Is called unless all was given before.

        Raises:
            NotFound: No such run, or it has no such call for its caller, or no such wait.
            IllegalTransition: A wait has another result or answer already, took too long, or its run was canceled.
            InvalidInput: An answer does not fit the request.
            IdempotencyMismatch: The key was used for another request.
        """
        while True:
            async with self._work.database.connection() as connection:
                waits = await ledger.find_wait(connection, tenant_id, run_id, None)
                if not waits and await run_status(connection, tenant_id, run_id) is None:
                    raise missing("run", run_id)
            name_outcome(f"/v1/runs/{run_id}", run_id=run_id)
            try:
                async with self._work.begin() as tx:
                    earlier, _ = await once(
                        tx.connection,
                        tenant_id,
                        request,
                        partial(_give, tx, waits, results, answers or {}, within),
                        _same,
                        made_id=made_id,
                    )
                    return Taken(await get_run(tx.connection, tenant_id, run_id), earlier or made_id)
            except _Changed:
                continue

    async def sweep(self, *, thorough: bool = False) -> int:
        """End every wait whose deadline has passed or whose child run has ended; return how many. May run concurrently.

        Args:
            thorough: Check all ended child runs, not only recent ones.

        Raises:
            Unavailable: The database does not answer; the next pass finds them again.
        """
        async with self._work.database.connection() as connection:
            due = await ledger.find_due_waits(connection, limit=_BATCH)
            ended = await ledger.find_waits_of_ended_children(
                connection, ended_within=None if thorough else _LOOK_BACK, limit=_BATCH
            )
        return await self._end_each(due, self._time_out) + await self._end_each(ended, self._end_with_child)

    async def _try_answer(self, wait: Wait, answer: Answer, within: Within | None) -> RunView | None:
        """Answer a wait. None if it is not as it was read; then nothing changed."""
        resolution = _answered(wait, answer)
        try:
            async with self._work.begin() as tx:
                if answer.remember:
                    await _remember(tx.connection, wait, answer)
                if not await _end(tx, wait, resolution):
                    raise _Changed
                if within is not None:
                    await within(tx.connection)
                return await get_run(tx.connection, wait.tenant_id, wait.run_id)
        except _Changed:
            return None

    async def _find(self, tenant_id: str, run_id: str, wait_id: str | None, answer: Answer) -> Wait:
        """Return the wait that an answer is for: an open one, or one that has this answer."""
        async with self._work.database.connection() as connection:
            waits = await ledger.find_wait(connection, tenant_id, run_id, wait_id)
            status = None if waits else await run_status(connection, tenant_id, run_id)
        if not waits:
            if status is None:
                raise missing("run", run_id)
            problem = "does not wait" if wait_id is None else f"has no wait {wait_id!r}"
            raise IllegalTransition(f"Run {run_id!r} {problem}; it is {status}.", status=status)
        fitting = [wait for wait in waits if wait.status == "open" and wait.request.kind in ANSWERABLE]
        if not fitting:
            past = [wait for wait in waits if wait.request.kind in ANSWERABLE]
            if len(past) == 1 and past[0].status == "resolved" and past[0].answer == _record_of(answer):
                return past[0]
            problem = "was answered before" if waits[0].request.kind in ANSWERABLE else "does not wait for a person"
            if any(wait.status == "open" and isinstance(wait.request, CallClientTool) for wait in waits):
                problem = f"waits for results of its caller's tools; give them with POST /v1/runs/{run_id}/tool-results"
            raise IllegalTransition(f"Run {run_id!r} {problem}.", wait_id=waits[0].id)
        if len(fitting) > 1:
            ids = ", ".join(wait.id for wait in fitting)
            raise Conflict(f"Run {run_id!r} waits for several answers; say which with wait_id: {ids}.", wait_ids=ids)
        return fitting[0]

    async def _end_each(self, waits: Sequence[Wait], end: Callable[[Wait], Awaitable[None]]) -> int:
        """End the waits one by one, and return how many ended. A failed one is left to the next pass."""
        ended = 0
        for wait in waits:
            try:
                await end(wait)
            except Unavailable:
                raise
            except Exception:
                _log.exception("wait.not_ended", tenant_id=wait.tenant_id, run_id=wait.run_id, wait_id=wait.id)
            else:
                ended += 1
        return ended

    async def _end_with_child(self, wait: Wait) -> None:
        """End a wait with the result of its child run."""
        async with self._work.begin() as tx:
            _, bell = await ledger.resolve_wait(tx.connection, wait, child_resolution(wait))
            tx.ring([] if bell is None else [bell])

    async def _time_out(self, wait: Wait) -> None:
        request = wait.request
        if isinstance(request, AskUser) and request.escalate_to is not None and wait.child_run_id is None:
            async with self._work.begin() as tx:
                bell = await ledger.escalate(tx.connection, wait, request.escalate_to, _escalated(request))
                tx.ring([] if bell is None else [bell])
            if bell is not None:
                _log.info("wait.escalated", run_id=wait.run_id, wait_id=wait.id, agent_id=request.escalate_to)
                return
        async with self._work.begin() as tx:
            ended = await _end(tx, wait, _timed_out(wait))
        if ended:
            _log.info("wait.timed_out", run_id=wait.run_id, wait_id=wait.id, kind=request.kind)


async def _end(tx: UnitOfWork, wait: Wait, resolution: Resolution) -> bool:
    """End a wait, and cancel its child run. False if it is not as it was read."""
    if wait.child_run_id is not None:
        # First: a child's end locks the child's rows before those of its parent.
        tx.cancel(await request_cancel(tx.connection, wait.tenant_id, [wait.child_run_id]))
    ended, bell = await ledger.resolve_wait(tx.connection, wait, resolution)
    tx.ring([] if bell is None else [bell])
    return ended


async def _give(
    tx: UnitOfWork,
    waits: Sequence[Wait],
    results: Sequence[GivenResult],
    answers: Mapping[str, Answer],
    within: Within | None,
) -> str | None:
    resolutions = [*_due_results(waits, results), *await _due_answers(tx.connection, waits, answers)]
    if resolutions:
        children = [wait.child_run_id for wait, _ in resolutions if wait.child_run_id is not None]
        if children:
            # First: a child's end locks the child's rows before those of its parent.
            tx.cancel(await request_cancel(tx.connection, waits[0].tenant_id, children))
        ended, bell = await ledger.resolve_waits(tx.connection, resolutions)
        if len(ended) < len(resolutions):
            raise _Changed
        tx.ring([] if bell is None else [bell])
        if within is not None:
            await within(tx.connection)
    return None


def _due_results(waits: Sequence[Wait], results: Sequence[GivenResult]) -> Iterator[tuple[Wait, Resolution]]:
    calls = {wait.tool_call_id: wait for wait in waits if isinstance(wait.request, CallClientTool)}
    for result in results:
        wait = calls.get(result.tool_call_id)
        if wait is None:
            raise missing("client_tool_call", result.tool_call_id, f"The run waits for: {_open_ones(calls)}.")
        resolution = _resulting(result)
        if _is_due(wait, resolution.answer):
            yield wait, resolution


async def _due_answers(
    connection: Connection, waits: Sequence[Wait], answers: Mapping[str, Answer]
) -> list[tuple[Wait, Resolution]]:
    asked = {wait.id: wait for wait in waits if wait.request.kind in ANSWERABLE}
    resolutions: list[tuple[Wait, Resolution]] = []
    for wait_id, answer in answers.items():
        wait = asked.get(wait_id)
        if wait is None:
            raise missing("wait", wait_id, f"The run waits for answers to: {_open_ones(asked)}.")
        if _is_due(wait, _record_of(answer)):
            resolutions.append((wait, _answered(wait, answer)))
            if answer.remember:
                await _remember(connection, wait, answer)
    return resolutions


async def _same(made_id: str) -> str | None:
    return made_id


def _open_ones(waits: Mapping[str, Wait]) -> str:
    return ", ".join(repr(name) for name, wait in waits.items() if wait.status == "open") or "none"


def _is_due(wait: Wait, answer: JsonObject) -> bool:
    """Return whether a wait is open; False if it has this answer.

    Raises:
        IllegalTransition: It ended otherwise.
    """
    if wait.status == "open":
        return True
    if wait.status == "resolved" and wait.answer == answer:
        return False
    why = {"resolved": "has another result already", "timed_out": "was not done in time"}
    raise IllegalTransition(
        f"Call {wait.tool_call_id!r} {why.get(wait.status, 'was canceled with its run')}.",
        tool_call_id=wait.tool_call_id,
        status=wait.status,
    )


def _resulting(result: GivenResult) -> Resolution:
    content = tuple(result.content)
    digest = hashlib.sha256(orjson.dumps([result.is_error, *content], option=orjson.OPT_SORT_KEYS)).hexdigest()
    error = (text_of(content) or "The tool failed.") if result.is_error else None
    return Resolution("resolved", {"sha256": digest}, content, failed=result.is_error, error=error)


async def _remember(connection: Connection, wait: Wait, answer: Answer) -> None:
    """Allow a call for all agents of the tree. The tree's row is locked first, as in every change of a tree."""
    if not isinstance(wait.request, AskApproval) or not answer.approve:
        raise InvalidInput("remember: only an approval can be remembered; give approve too.", field="remember")
    call = lasting_call(wait.request.tool_name, wait.request.params)
    if not await allow_always(connection, wait.tenant_id, wait.run_id, call):
        raise InvalidInput(
            "remember: the run belongs to no orchestration. Add a rule to the agent's approvals instead.",
            field="remember",
        )


def _record_of(answer: Answer) -> JsonObject:
    """Return the record of an answer."""
    record = answer.model_dump(mode="json", include={"text", "approve", "by"}, exclude_none=True)
    return {**record, "remember": True} if answer.remember else record


def _answered(wait: Wait, answer: Answer) -> Resolution:
    record = _record_of(answer)
    if isinstance(wait.request, AskApproval):
        return _decided(answer, record)
    if answer.text is None:
        raise InvalidInput("text: the run asks a question; give its answer as text.", field="text")
    request = wait.request
    if isinstance(request, AskUser) and not request.takes(answer.text):
        options = ", ".join(map(repr, request.options))
        raise InvalidInput(f"text: {answer.text!r} is not one of the options {options}.", field="text")
    return Resolution("resolved", record, (text_block(storable(answer.text)),))


def _decided(answer: Answer, record: dict[str, object]) -> Resolution:
    if answer.approve is None:
        raise InvalidInput("approve: the run asks for permission; say true or false.", field="approve")
    if answer.approve:
        return Resolution("resolved", record, None)
    because = f": {storable(answer.text)}" if answer.text else ". Find another way, or say what you cannot do."
    text = f"A person did not permit this call{because}"
    return Resolution("resolved", record, (text_block(text),), failed=True, error=text)


def _timed_out(wait: Wait) -> Resolution:
    request = wait.request
    if isinstance(request, Pause):
        return Resolution("resolved", {}, (text_block(f"It is {request.until:%Y-%m-%d %H:%M:%S %Z} now."),))
    if isinstance(request, CallClientTool):
        if request.default is not None:
            return Resolution("timed_out", {"text": request.default}, (text_block(request.default),))
        text = f"{request.tool_name} gave no result within {request.expires_in_s:g} s."
        return Resolution("timed_out", {}, (text_block(text),), failed=True, error=text)
    if isinstance(request, AskUser) and request.default is not None:
        text = f"{request.default}\n(Nobody answered in time; this is the default.)"
        return Resolution("timed_out", {"text": request.default}, (text_block(text),))
    if isinstance(request, AwaitMessages):
        return _no_message(request)
    absent = request.agent_id if isinstance(request, AskAgent) else "The person"
    text = f"{absent} did not answer in time."
    return Resolution("timed_out", {}, (text_block(text),), failed=True, error=text)


def _no_message(request: AwaitMessages) -> Resolution:
    text = f"No message arrived within {request.timeout_s:g} s." if request.timeout_s else "No message arrived in time."
    # An agent that asks for any message learns that there is none; one that needs an answer did not get it.
    missing = request.sender != "any"
    return Resolution("timed_out", {}, (text_block(text),), failed=missing, error=text if missing else None)


def _escalated(request: AskUser) -> str:
    options = f"\nAnswer with one of: {', '.join(request.options)}" if request.options else ""
    if options:
        options += "." if request.only_options else ", or in your own words."
    return (
        "A person was asked this and did not answer in time. Answer in their place, briefly, with nothing but the "
        f"answer.\n\n{request.question}{options}"
    )
