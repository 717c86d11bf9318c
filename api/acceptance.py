"""Accepts a message and responds as requested: at once, when the run has ended, or with an event stream."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import structlog
from fastapi import Depends, Request, Response
from redis.exceptions import RedisError

from nova_workers.base.errors import Unavailable
from nova_workers.base.ids import new_id
from nova_workers.base.observability.tracing import current_traceparent
from nova_workers.base.vocabulary import ENDED_RUNS, EXTERNAL_WAITS
from nova_workers.contracts.http.wire import RunCreate, RunView, StatelessRunCreate
from nova_workers.contracts.runs import Accepted, RequestKey, Submission
from nova_workers.domain.runs.rules.submit import MakeThread, WithRun
from nova_workers.domain.runs.sql.reads import RunState, get_ended_run, get_run
from nova_workers.domain.streams.rules.wire import LiveEvent

from .auth import Caller, SubmittingCaller
from .state import ApiState, state_of
from .streaming.ended_views import ended_view
from .streaming.following import Target, Waited
from .streaming.sse import RunEventStream
from .streaming.stream_permits import StreamPermit
from .submitting import IdempotencyKey, accepted_view, request_key, scaled, to_submission

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MessageAcceptance:
    """The parts of a request that submits messages."""

    state: ApiState
    caller: Caller
    request: Request
    idempotency_key: str | None

    async def accept(self, body: RunCreate, thread_id: str | None) -> Response:
        """Accept and respond at once."""
        accepted, submission = await self.submit(body, thread_id)
        return _answer(await self._accepted_view(accepted, submission), 202, _headers(accepted))

    async def submit_one(self, body: StatelessRunCreate, *, path: str, idempotency_key: str | None) -> RunView:
        """Accept one message of a batch and return its run.

        Args:
            body: The message.
            path: The path of the single request that it replaces; part of the body's hash.
            idempotency_key: The message's own key.
        """
        one = replace(self, idempotency_key=idempotency_key)
        accepted, submission = await one.submit(body, None, path=path)
        return await self._accepted_view(accepted, submission)

    async def accept_and_wait(self, body: RunCreate, thread_id: str | None, timeout_s: float | None) -> Response:
        """Accept and respond when the run has ended."""
        state, run_id = self.state, new_id("run")
        # Followed before it is accepted: otherwise a short run may have ended before its follower is there.
        with state.follower.expect_end(run_id, had_events=False) as end:
            accepted, submission = await self.submit(body, thread_id, run_id=run_id)
            headers = _headers(accepted)
            if accepted.run_id == run_id:
                before = accepted_view(accepted, submission)
                try:
                    ending = await end.outcome(self.request.receive, timeout_s=longest_wait_s(state, timeout_s))
                    view = await _view_after(state, self.caller, before, ending, final=end.final)
                    return _answer(view, _status_of(view), headers)
                except (Unavailable, RedisError) as error:
                    # It is accepted, whatever happens later.
                    _log.warning("http_request.answered_as_accepted", run_id=run_id, error=str(error))
                    return _answer(before, 202, headers)
        return await answer_at_end(
            state, self.caller, self.request, accepted.run_id, timeout_s=timeout_s, headers=headers
        )

    async def accept_and_stream(self, body: RunCreate, thread_id: str | None) -> Response:
        """Accept and respond with events. The stream permit comes first, so that a refusal creates no run."""
        async with self.state.permits.hold(self.caller.key_id) as permit:
            accepted, _ = await self.submit(body, thread_id)
            target, found = (
                Target(self.caller.tenant_id, accepted.run_id),
                RunState.accepted(accepted.run_id, accepted.thread_id, accepted.agent_id),
            )
            if accepted.replayed:
                found = await self.state.follower.find(target)
            return open_stream(self.state, target, found, permit.handed_over(), _headers(accepted))

    async def _accepted_view(self, accepted: Accepted, submission: Submission) -> RunView:
        if accepted.replayed:
            return await _view(self.state, self.caller, accepted.run_id)
        return accepted_view(accepted, submission)

    async def submit(
        self,
        body: RunCreate,
        thread_id: str | None,
        *,
        path: str | None = None,
        run_id: str | None = None,
        request: RequestKey | None = None,
        make_thread: MakeThread | None = None,
        with_run: WithRun | None = None,
    ) -> tuple[Accepted, Submission]:
        """Accept a message.

        Args:
            body: The message.
            thread_id: The thread that the path names.
            path: Part of the body's hash; None for the request's own.
            run_id: The id that a new run gets.
            request: The idempotency key, where it is bound to another body than this one.
            make_thread: Makes the thread, in the run's transaction; the body names neither a thread nor an agent then.
            with_run: Writes what the message has beside, in the run's transaction.

        Raises:
            NovaError: It is refused; then there is no run.
        """
        services = self.state.services
        submission = to_submission(
            body,
            await scaled(body.message),
            tenant_id=self.caller.tenant_id,
            created_by=self.caller.principal,
            thread_id=thread_id,
            request=request
            or request_key(
                self.idempotency_key,
                path or self.request.url.path,
                body,
                ttl_s=services.settings.runs.idempotency_ttl_s,
            ),
            max_message_chars=services.settings.api.max_message_chars,
            traceparent=current_traceparent(),
            now=services.clock.now(),
        )
        accepted = await services.submitter.submit(
            submission, run_id=run_id, make_thread=make_thread, with_run=with_run
        )
        if not accepted.replayed:
            services.metrics.runs_accepted.labels(accepted.queue, submission.source).inc()
        return accepted, submission


async def _acceptance(
    request: Request, caller: SubmittingCaller, idempotency_key: IdempotencyKey = None
) -> MessageAcceptance:
    return MessageAcceptance(state_of(request), caller, request, idempotency_key)


Acceptance = Annotated[MessageAcceptance, Depends(_acceptance)]


async def answer_at_end(
    state: ApiState,
    caller: Caller,
    request: Request,
    run_id: str,
    *,
    timeout_s: float | None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Respond 200 with a run when it has ended, 202 with its current state if `view_at_end` returns it earlier.

    Args:
        state: The application's state.
        caller: The authenticated caller.
        request: The request; waiting stops when its client disconnects.
        timeout_s: Longest wait, bounded by the setting.
        headers: Headers of the response.

    Raises:
        NotFound: No such run in this tenant.
    """
    view = await view_at_end(state, caller, request, run_id, timeout_s=timeout_s)
    return _answer(view, _status_of(view), headers)


async def view_at_end(
    state: ApiState, caller: Caller, request: Request, run_id: str, *, timeout_s: float | None
) -> RunView:
    """Return a run when it has ended, or earlier if that takes too long, or if the run waits for an answer.

    Args:
        state: The application's state.
        caller: The authenticated caller.
        request: The request; waiting stops when its client disconnects.
        timeout_s: Longest wait, bounded by the setting.

    Raises:
        NotFound: No such run in this tenant.
    """
    found = await _view(state, caller, run_id)
    if found.status in ENDED_RUNS or any(wait.request.kind in EXTERNAL_WAITS for wait in found.waits):
        return found
    after_attempt = found.attempt - (found.status == "running")
    with state.follower.expect_end(run_id, had_events=found.attempt > 0, after_attempt=after_attempt) as end:
        ending = await end.outcome(request.receive, timeout_s=longest_wait_s(state, timeout_s))
    return await _view_after(state, caller, found, ending, final=end.final)


async def _view_after(
    state: ApiState, caller: Caller, before: RunView, ending: Waited, *, final: LiveEvent | None
) -> RunView:
    view = ended_view(before, final)
    if view is None:
        async with state.services.database.connection() as connection:
            # Another run than an ended one is that of a timeout or of a question.
            view = await get_ended_run(connection, caller.tenant_id, before.id) if ending == "over" else None
            view = view or await get_run(connection, caller.tenant_id, before.id)
    return view


def longest_wait_s(state: ApiState, timeout_s: float | None) -> float:
    """Return how long a request waits, at most as long as the setting permits."""
    longest_s = state.services.settings.api.wait_timeout_s
    return min(timeout_s or longest_s, longest_s)


def open_stream(
    state: ApiState, target: Target, found: RunState, permit: StreamPermit, headers: Mapping[str, str]
) -> RunEventStream:
    """Return the response that follows a run and releases the permit at its end."""
    return RunEventStream(
        target,
        found,
        follower=state.follower,
        permit=permit,
        metrics=state.services.metrics,
        heartbeat_s=state.services.settings.api.heartbeat_s,
        headers=headers,
    )


async def _view(state: ApiState, caller: Caller, run_id: str) -> RunView:
    async with state.services.database.connection() as connection:
        return await get_run(connection, caller.tenant_id, run_id)


def _headers(accepted: Accepted) -> dict[str, str]:
    headers = {"location": f"/v1/runs/{accepted.run_id}", "nova-run-id": accepted.run_id}
    if accepted.interrupted_run_id is not None:
        headers["nova-interrupted-run-id"] = accepted.interrupted_run_id
    if accepted.replayed:
        headers["idempotent-replayed"] = "true"
    return headers


def _status_of(view: RunView) -> int:
    return 200 if view.status in ENDED_RUNS else 202


def _answer(view: RunView, status: int, headers: Mapping[str, str] | None) -> Response:
    # The view is validated already; this skips FastAPI's second validation on the busiest routes.
    return Response(view.model_dump_json(), status_code=status, headers=headers, media_type="application/json")
