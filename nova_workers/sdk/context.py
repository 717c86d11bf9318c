"""What a tool may know of its call, and what it may do during it."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from nova_workers.base.errors import ToolFailure

_log = logging.getLogger("tools")


class ToolContext:
    """The context of a call: a tool gets it by a parameter with this type.

    All of it may be used from any thread. Tests make one: ``ToolContext(secrets={"TOKEN": "abc"})``.

    Attributes:
        tenant_id: The tenant of the run.
        agent_id: The agent that calls.
        thread_id: The conversation.
        run_id: The run, which may be executed in several attempts.
        idempotency_key: Names the call: the same when the call is made again, so that a service which knows such keys
            does its work once.
        log: Writes to the worker's log, with the tool and the run. Secrets are taken out.
    """

    def __init__(
        self,
        *,
        tenant_id: str = "",
        agent_id: str = "",
        thread_id: str = "",
        run_id: str = "",
        idempotency_key: str | None = None,
        timeout_s: float = 60.0,
        secrets: Mapping[str, str] | None = None,
        report: Callable[[float, float | None, str | None], None] | None = None,
        tool: str = "",
    ) -> None:
        """Make the context of a call.

        Args:
            tenant_id: The tenant of the run.
            agent_id: The agent that calls.
            thread_id: The conversation.
            run_id: The run in which it is made.
            idempotency_key: Of the call; None makes one.
            timeout_s: The time limit of the call, from now.
            secrets: Values by name.
            report: Takes progress; None drops it.
            tool: The tool's name, for the log.
        """
        self.tenant_id = tenant_id
        self.agent_id = agent_id
        self.thread_id = thread_id
        self.run_id = run_id
        self.idempotency_key = idempotency_key or uuid.uuid4().hex
        self.log = _CallLog(_log, {"tool": tool, "run_id": run_id})
        self._ends_at_s = time.monotonic() + timeout_s
        self._secrets = dict(secrets or {})
        self._report = report
        self._aborted = threading.Event()

    @property
    def time_left_s(self) -> float:
        """The seconds until the call's time limit; 0 after it."""
        return max(self._ends_at_s - time.monotonic(), 0.0)

    @property
    def aborted(self) -> bool:
        """Whether the call was canceled or timed out. A plain function must return then; an async one is canceled."""
        return self._aborted.is_set()

    def secret(self, name: str) -> str:
        """Return the value of a secret of the tenant.

        Raises:
            ToolFailure: The agent's grant does not name it.
        """
        if name not in self._secrets:
            granted = ", ".join(sorted(self._secrets)) or "none"
            raise ToolFailure(
                f"This tool needs the secret {name!r}, which the agent's grant does not name (it names {granted}). "
                f'Add it to the configuration of the grant: "secrets": ["{name}"].'
            )
        return self._secrets[name]

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Show people how far the call is. Returns at once; of many reports a second some are left out."""
        if self._report is not None and not self.aborted:
            self._report(done, total, message)

    def abort(self) -> None:
        """Mark the call as aborted. For what executes tools, and for tests."""
        self._aborted.set()


class _CallLog(logging.LoggerAdapter[logging.Logger]):
    """Adds tool and run to each message."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        fields = " ".join(f"{name}={value}" for name, value in (self.extra or {}).items() if value)
        return (f"{msg} [{fields}]" if fields else msg), kwargs
