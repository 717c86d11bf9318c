# Generated from nova_workers/client/resources/thread_calls.py by `make format`: change that file instead.
"""The calls of ``/v1/threads`` that are one request each."""

from nova_workers.base.vocabulary import RunSource
from nova_workers.client.headers import idempotency
from nova_workers.client.sync.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.overview.forks import ForkTreeView
from nova_workers.contracts.http.thread_states import ThreadStatePatch, ThreadStateReplace, ThreadStateView
from nova_workers.contracts.http.wire import (
    MessageView,
    RestoredContent,
    RunView,
    ThreadFork,
    ThreadPatch,
    ThreadView,
    TurnView,
)


class ThreadCalls:
    """``/v1/threads``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self,
        *,
        agent_id: str | None = None,
        label: str | None = None,
        forked_from: str | None = None,
        origin: RunSource | None = None,
        created_by: str | None = None,
        pinned: bool | None = None,
        archived: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[ThreadView]:
        """Return a page of threads, newest first; with `forked_from` only forks of that thread."""
        return self._transport.fetch(
            Page[ThreadView],
            "GET",
            "/v1/threads",
            params={
                "agent_id": agent_id,
                "label": label,
                "forked_from": forked_from,
                "origin": origin,
                "created_by": created_by,
                "pinned": pinned,
                "archived": archived,
                "limit": limit,
                "cursor": cursor,
            },
        )

    def get(self, thread_id: str) -> ThreadView:
        """Return a thread."""
        return self._transport.fetch(ThreadView, "GET", f"/v1/threads/{thread_id}")

    def patch(self, thread_id: str, change: ThreadPatch) -> ThreadView:
        """Change the fields that `change` sets."""
        return self._transport.fetch(ThreadView, "PATCH", f"/v1/threads/{thread_id}", body=change)

    def delete(self, thread_id: str) -> None:
        """Delete a thread; later requests for it raise `Gone`."""
        self._transport.send("DELETE", f"/v1/threads/{thread_id}")

    def fork(self, thread_id: str, fork: ThreadFork, *, idempotency_key: str | None = None) -> ThreadView:
        """Create a thread that continues from a turn of this one."""
        return self._transport.fetch(
            ThreadView, "POST", f"/v1/threads/{thread_id}/fork", body=fork, headers=idempotency(idempotency_key)
        )

    def forks(self, thread_id: str) -> ForkTreeView:
        """Return the threads that were forked from each other and of which this is one."""
        return self._transport.fetch(ForkTreeView, "GET", f"/v1/threads/{thread_id}/forks")

    def messages(
        self,
        thread_id: str,
        *,
        from_depth: int | None = None,
        to_depth: int | None = None,
        after: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[MessageView]:
        """Return a page of the conversation, oldest first; of the turns from one depth to another, after a message."""
        return self._transport.fetch(
            Page[MessageView],
            "GET",
            f"/v1/threads/{thread_id}/messages",
            params={"from_depth": from_depth, "to_depth": to_depth, "after": after, "limit": limit, "cursor": cursor},
        )

    def turns(
        self, thread_id: str, *, to_depth: int | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[TurnView]:
        """Return a page of the thread's turns, newest first, from a depth on."""
        return self._transport.fetch(
            Page[TurnView],
            "GET",
            f"/v1/threads/{thread_id}/turns",
            params={"to_depth": to_depth, "limit": limit, "cursor": cursor},
        )

    def state(self, thread_id: str) -> ThreadStateView:
        """Return the thread's state document; before the first change it is empty and has version 0."""
        return self._transport.fetch(ThreadStateView, "GET", f"/v1/threads/{thread_id}/state")

    def replace_state(self, thread_id: str, change: ThreadStateReplace) -> ThreadStateView:
        """Replace the whole document, if it has the version that `change` names; `Conflict` otherwise."""
        return self._transport.fetch(ThreadStateView, "PUT", f"/v1/threads/{thread_id}/state", body=change)

    def patch_state(self, thread_id: str, change: ThreadStatePatch) -> ThreadStateView:
        """Change fields of the document by a JSON Merge Patch, and only at a version if `change` names one."""
        return self._transport.fetch(ThreadStateView, "PATCH", f"/v1/threads/{thread_id}/state", body=change)

    def restore_content(self, thread_id: str, turn_id: str) -> RestoredContent:
        """Give the model again what was left out of the conversation in a turn, from the next turn on."""
        return self._transport.fetch(
            RestoredContent, "POST", f"/v1/threads/{thread_id}/turns/{turn_id}/restore", repeatable=True
        )

    def runs(
        self, thread_id: str, *, media: bool = True, limit: int | None = None, cursor: str | None = None
    ) -> Page[RunView]:
        """Return a page of the thread's runs; without `media`, images and documents have no base64 data."""
        return self._transport.fetch(
            Page[RunView],
            "GET",
            f"/v1/threads/{thread_id}/runs",
            params={"media": None if media else False, "limit": limit, "cursor": cursor},
        )
