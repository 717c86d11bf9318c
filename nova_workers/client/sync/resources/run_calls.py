# Generated from nova_workers/client/resources/run_calls.py by `make format`: change that file instead.
"""The calls of ``/v1/runs`` that are one request each."""

from collections.abc import Sequence
from datetime import datetime

from nova_workers.base.vocabulary import Rating, RunQueue, RunSort, RunSource, RunStatus, SortOrder, WaitKind
from nova_workers.client.sync.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.overview.requests import ModelRequestView
from nova_workers.contracts.http.overview.timeline import RunTimeline
from nova_workers.contracts.http.reasons import RunFail, RunReasons
from nova_workers.contracts.http.wire import BulkCancel, BulkCanceled, BulkRetried, BulkRetry, RunEdit, RunPage, RunView
from nova_workers.contracts.waits import RunAnswer, ToolResults, WaitView


class RunCalls:
    """``/v1/runs``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, run_id: str) -> RunView:
        """Return a run."""
        return self._transport.fetch(RunView, "GET", f"/v1/runs/{run_id}")

    def timeline(self, run_id: str, *, limit: int | None = None, cursor: str | None = None) -> RunTimeline:
        """Return the timeline of a run, with a page of its steps, oldest first."""
        return self._transport.fetch(
            RunTimeline, "GET", f"/v1/runs/{run_id}/timeline", params={"limit": limit, "cursor": cursor}
        )

    def request(
        self, run_id: str, step: int, *, limit: int | None = None, cursor: str | None = None
    ) -> ModelRequestView:
        """Return the request of a step's model call, with a page of its messages, newest first, and its response."""
        return self._transport.fetch(
            ModelRequestView,
            "GET",
            f"/v1/runs/{run_id}/steps/{step}/request",
            params={"limit": limit, "cursor": cursor},
        )

    def result(self, run_id: str, *, timeout_s: float = 660.0) -> RunView:
        """Return a run once it has ended, or its state at the server's wait limit."""
        return self._transport.fetch(RunView, "GET", f"/v1/runs/{run_id}/wait", timeout_s=timeout_s)

    def list(
        self,
        *,
        sort: RunSort | None = None,
        order: SortOrder | None = None,
        media: bool = True,
        thread_id: str | None = None,
        agent_id: str | None = None,
        agent_version: int | None = None,
        status: RunStatus | Sequence[RunStatus] | None = None,
        queue: RunQueue | None = None,
        trigger_id: str | None = None,
        parent_run_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        source: RunSource | None = None,
        channel: str | None = None,
        tag: str | None = None,
        metadata: str | Sequence[str] | None = None,
        min_cost_usd: float | None = None,
        rated: Rating | None = None,
        tool: str | None = None,
        text: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> RunPage:
        """Return a page of runs, newest first, or sorted by another value than the time of submission (see `RunPage`).

        Args:
            status: Only with this status, or one of these.
            trigger_id: Only those that this trigger fired.
            parent_run_id: Only those that this run started.
            since: Only those submitted at this time or later.
            until: Only those submitted before this time.
            source: Only those that were submitted by this.
            agent_version: Only those that this version of their agent executed.
            channel: Only those with this `channel` in their metadata.
            tag: Only those with this word among the `tags` of their metadata.
            metadata: Only those with each of these entries, such as ``["customer=42"]``.
            min_cost_usd: Only those that cost so much or more.
            rated: Only those with feedback whose score is above 0 (``up``), or below (``down``).
            tool: Only those that called this tool.
            text: Only those with this text in their message, answer or error.
            order: `desc` has the newest or largest first.
            media: Without, images and documents of messages have no base64 data.
        """
        return self._transport.fetch(
            RunPage,
            "GET",
            "/v1/runs",
            params={
                "sort": sort,
                "order": order,
                "media": None if media else False,
                "thread_id": thread_id,
                "agent_id": agent_id,
                "agent_version": agent_version,
                "status": status,
                "queue": queue,
                "trigger_id": trigger_id,
                "parent_run_id": parent_run_id,
                "since": since,
                "until": until,
                "source": source,
                "channel": channel,
                "tag": tag,
                "metadata": metadata,
                "min_cost_usd": min_cost_usd,
                "rated": rated,
                "tool": tool,
                "text": text,
                "limit": limit,
                "cursor": cursor,
            },
        )

    def cancel(self, run_id: str) -> RunView:
        """Request the cancellation of a run. `IllegalTransition` if it has ended."""
        return self._transport.fetch(RunView, "POST", f"/v1/runs/{run_id}/cancel")

    def cancel_many(self, which: BulkCancel) -> BulkCanceled:
        """Cancel all open runs that match, up to 1,000; with `dry_run` only count them."""
        return self._transport.fetch(BulkCanceled, "POST", "/v1/runs/cancel", body=which)

    def retry(self, run_id: str) -> RunView:
        """Try a failed run again. `IllegalTransition` if its failure cannot be taken back."""
        return self._transport.fetch(RunView, "POST", f"/v1/runs/{run_id}/retry")

    def retry_many(self, which: BulkRetry) -> BulkRetried:
        """Try failed runs again that match, up to 1,000; with `dry_run` only count them."""
        return self._transport.fetch(BulkRetried, "POST", "/v1/runs/retry", body=which)

    def reasons(self, run_id: str) -> RunReasons:
        """Return every reason why a run has not moved."""
        return self._transport.fetch(RunReasons, "GET", f"/v1/runs/{run_id}/reasons")

    def kick(self, run_id: str) -> RunView:
        """Look after a queued or waiting run now. `IllegalTransition` if it runs or has ended."""
        return self._transport.fetch(RunView, "POST", f"/v1/runs/{run_id}/kick")

    def requeue(self, run_id: str) -> RunView:
        """Take a run back from a worker whose lease has expired. `IllegalTransition` under a live lease."""
        return self._transport.fetch(RunView, "POST", f"/v1/runs/{run_id}/requeue")

    def fail(self, run_id: str, failure: RunFail) -> RunView:
        """Let a run that had begun, and that no worker holds, end as failed. `IllegalTransition` for others."""
        return self._transport.fetch(RunView, "POST", f"/v1/runs/{run_id}/fail", body=failure)

    def answer(self, run_id: str, answer: RunAnswer) -> RunView:
        """Answer a waiting run. `IllegalTransition` if it has another answer already."""
        return self._transport.fetch(RunView, "POST", f"/v1/runs/{run_id}/answers", body=answer)

    def give_results(self, run_id: str, results: ToolResults) -> RunView:
        """Give a waiting run results of its `client_tools`: all, or none. The same may be given again."""
        return self._transport.fetch(RunView, "POST", f"/v1/runs/{run_id}/tool-results", body=results, repeatable=True)

    def waits(
        self,
        *,
        kind: WaitKind | None = None,
        agent_id: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[WaitView]:
        """Return a page of waits, newest first; by default those that a person answers."""
        return self._transport.fetch(
            Page[WaitView],
            "GET",
            "/v1/waits",
            params={"kind": kind, "agent_id": agent_id, "limit": limit, "cursor": cursor},
        )

    def edit(self, run_id: str, edit: RunEdit) -> RunView:
        """Replace the message of a run that is still queued."""
        return self._transport.fetch(RunView, "PATCH", f"/v1/runs/{run_id}", body=edit)

    def withdraw(self, run_id: str) -> None:
        """Remove a run that is still queued."""
        self._transport.send("DELETE", f"/v1/runs/{run_id}")
