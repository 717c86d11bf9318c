# Generated from nova_workers/client/resources/runs.py by `make format`: change that file instead.
"""``/v1/runs`` and ``/v1/threads/{id}/runs``: submit, follow, steer and end runs."""

from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Generator
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime

from pydantic import ValidationError

from nova_workers.base.errors import NovaError, Unavailable
from nova_workers.base.ids import new_id
from nova_workers.base.vocabulary import RetryRefusal
from nova_workers.client.headers import idempotency
from nova_workers.client.retry import Attempts
from nova_workers.client.sync.connection import sleep
from nova_workers.client.sync.resources.run_calls import RunCalls
from nova_workers.client.sync.transport import EventSource
from nova_workers.contracts.events import Event, EventCursor, StreamEnd, event_adapter
from nova_workers.contracts.http.run_lists import RunListQuery
from nova_workers.contracts.http.wire import (
    BulkCancel,
    BulkCanceled,
    BulkRetried,
    BulkRetry,
    RunBatch,
    RunBatchView,
    RunCreate,
    RunView,
    StatelessRunCreate,
)

NO_MORE_EVENTS = 204
"""The API's answer to a client that already has the final event."""


class Runs(RunCalls):
    """Submit, follow and end runs.

    Every submission has an Idempotency-Key, generated unless given, so that a request whose answer was lost is repeated
    without a second run.
    """

    def csv(self, which: RunListQuery) -> Generator[str]:
        """Yield a file for spreadsheets in pieces: the runs that match, at most 10,000, in their order.

        Raises:
            Unavailable: The connection broke, so the file is incomplete.
        """
        params = which.parameters(datetime.now(UTC))
        with self._transport.download("/v1/runs.csv", accept="text/csv", params=params) as pieces:
            # A piece may end inside a character.
            decoder = getincrementaldecoder("utf-8")()
            for piece in pieces:
                yield decoder.decode(piece)

    def create(self, run: RunCreate, *, thread_id: str | None = None, idempotency_key: str | None = None) -> RunView:
        """Queue a message, and return its accepted run.

        Args:
            run: The message. Without `thread_id` it is a `StatelessRunCreate`, which names its thread or agent.
            thread_id: The message's thread.
            idempotency_key: Identifies this submission; repeating it returns the first run.
        """
        return self._transport.fetch(
            RunView, "POST", _submit_path(run, thread_id, ""), body=run, headers=idempotency(idempotency_key)
        )

    def create_many(self, batch: RunBatch) -> RunBatchView:
        """Queue up to 100 messages, and return the outcome of each, in their order.

        Messages without an idempotency key get one.
        """
        items = [
            item if item.idempotency_key else item.model_copy(update={"idempotency_key": new_id("evt")})
            for item in batch.items
        ]
        keyed = batch.model_copy(update={"items": items})
        return self._transport.fetch(RunBatchView, "POST", "/v1/runs/batch", body=keyed, repeatable=True)

    def wait(
        self,
        run: RunCreate,
        *,
        thread_id: str | None = None,
        idempotency_key: str | None = None,
        timeout_s: float = 660.0,
    ) -> RunView:
        """Queue a message and return its run once it has ended, or its state at the server's wait limit."""
        return self._transport.fetch(
            RunView,
            "POST",
            _submit_path(run, thread_id, "/wait"),
            body=run,
            headers=idempotency(idempotency_key),
            timeout_s=timeout_s,
        )

    def cancel_all(self, which: BulkCancel) -> BulkCanceled:
        """Cancel all open runs that match, however many."""
        canceled = requested = 0
        while True:
            done = self.cancel_many(which)
            canceled, requested = canceled + done.canceled, requested + done.requested
            if which.dry_run or not (done.canceled or done.requested):
                return BulkCanceled(canceled=canceled, requested=requested)

    def retry_all(self, which: BulkRetry) -> BulkRetried:
        """Try all failed runs again that match, however many."""
        retried, skipped = 0, Counter[RetryRefusal]()
        while True:
            done = self.retry_many(which)
            retried += done.retried
            skipped.update(done.skipped)
            if done.next_after is None:
                return BulkRetried(retried=retried, skipped=dict(skipped))
            which = which.model_copy(update={"after": done.next_after})

    def stream(
        self, run: RunCreate, *, thread_id: str | None = None, idempotency_key: str | None = None
    ) -> Generator[tuple[EventCursor, Event]]:
        """Queue a message and yield its events as `events` does, with one request unless the stream breaks.

        A caller that needs the run's id before its first event, to cancel it, uses `create` and `events`.
        """
        path, headers = _submit_path(run, thread_id, "/stream"), idempotency(idempotency_key)
        attempts = Attempts(self._transport.retry, headers["Idempotency-Key"], repeatable=True, is_once=True)
        run_id, seen = "", EventCursor()
        while not run_id:
            try:
                with self._transport.listen("POST", path, body=run, headers=headers) as source:
                    run_id = source.response.headers["Nova-Run-Id"]
                    with closing(_read(source, seen)) as feed:
                        for cursor, event in feed:
                            seen = cursor
                            if event is not None:
                                yield cursor, event
                                if isinstance(event, StreamEnd) and event.final:
                                    return
            except Unavailable as error:
                if not run_id:
                    sleep(attempts.fail(error))
        with closing(self.events(run_id, after=seen)) as rest:
            for cursor, event in rest:
                yield cursor, event

    def events(self, run_id: str, *, after: EventCursor | None = None) -> Generator[tuple[EventCursor, Event]]:
        """Yield a run's events from `after` on, in order, each once, until the run ends.

        A dropped connection is resumed after the last event. Event types that this client does not know are skipped.
        Close the generator (`contextlib.closing`) when leaving it early.

        Raises:
            Unavailable: The connection was lost more often in a row than `Retry` allows.
            NotFound: No such run.
        """
        seen = after or EventCursor()
        failures = 0
        while True:
            cause: NovaError | None = None
            try:
                with self._listen(run_id, seen) as source:
                    if source.response.status_code == NO_MORE_EVENTS:
                        return
                    with closing(_read(source, seen)) as feed:
                        for cursor, event in feed:
                            seen, failures = cursor, 0
                            if event is not None:
                                yield cursor, event
                                if isinstance(event, StreamEnd) and event.final:
                                    return
            except Unavailable as error:
                cause = error
            failures += 1
            if failures > self._transport.retry.attempts:
                raise _lost(run_id, seen, failures) from cause
            sleep(self._transport.retry.delay_s(failures))

    def _listen(self, run_id: str, after: EventCursor) -> AbstractContextManager[EventSource]:
        headers = {"Last-Event-ID": str(after)} if after != EventCursor() else None
        return self._transport.listen("GET", f"/v1/runs/{run_id}/events", headers=headers)


def _read(source: EventSource, after: EventCursor) -> Generator[tuple[EventCursor, Event | None]]:
    """Yield the events of an open stream that come after `after`; None stands for one of an unknown type."""
    for frame in source:
        # An SSE id also applies to the frames after it; frames without an event of ours have none.
        if frame.data and frame.id and (cursor := EventCursor.parse(frame.id)).key() > after.key():
            yield cursor, _parse(frame.data)


def _submit_path(run: RunCreate, thread_id: str | None, ending: str) -> str:
    if thread_id is not None:
        return f"/v1/threads/{thread_id}/runs{ending}"
    if not isinstance(run, StatelessRunCreate):
        raise TypeError("A RunCreate needs thread_id; a StatelessRunCreate names its thread or agent itself.")
    return f"/v1/runs{ending}"


def _parse(data: str) -> Event | None:
    try:
        return event_adapter.validate_json(data)
    except ValidationError as error:
        if {item["type"] for item in error.errors()} == {"union_tag_invalid"}:
            return None
        raise


def _lost(run_id: str, seen: EventCursor, failures: int) -> Unavailable:
    return Unavailable(
        f"The event stream of {run_id} was lost {failures} times in a row. The run itself continues; "
        f"take it up again with `nova runs tail {run_id} --after {seen}`.",
        run_id=run_id,
    )
