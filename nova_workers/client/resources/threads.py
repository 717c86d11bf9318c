"""``/v1/threads``."""

from nova_workers.client.headers import idempotency
from nova_workers.client.resources.thread_calls import ThreadCalls
from nova_workers.contracts.http.wire import ThreadCreate, ThreadView

_IMPORT_S = 120.0
"""The time for the answer to an import of messages."""


class Threads(ThreadCalls):
    """``/v1/threads``."""

    async def create(self, thread: ThreadCreate, *, idempotency_key: str | None = None) -> ThreadView:
        """Create a thread: empty, or with the messages of a conversation that took place elsewhere.

        Args:
            idempotency_key: Identifies this request; repeating it returns the first thread. One is generated if it is
                omitted.
        """
        return await self._transport.fetch(
            ThreadView,
            "POST",
            "/v1/threads",
            body=thread,
            headers=idempotency(idempotency_key),
            timeout_s=_IMPORT_S if thread.messages else None,
        )
