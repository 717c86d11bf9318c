"""What a tool may know of its call, and what it may do during it."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from nova_workers.base.errors import ToolFailure
from nova_workers.contracts.user_tools import GivenAnswer

_log = logging.getLogger("tools")


class NotAnswered(ToolFailure):
    """A person did not answer a question in time."""


class Asked(BaseException):
    """A tool asks a person: its call ends here, and is made again with the answer.

    Not an `Exception`, so that what a tool does about errors does not catch it.
    """

    def __init__(self, question: Mapping[str, Any]) -> None:
        """Take the fields of the question (`nova_workers.contracts.waits.AskUser`)."""
        super().__init__(str(question["question"]))
        self.question = question


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
        directory: str | Path | None = None,
        timeout_s: float = 60.0,
        secrets: Mapping[str, str] | None = None,
        answers: Sequence[str | GivenAnswer] = (),
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
            directory: The agent's working directory.
            timeout_s: The time limit of the call, from now.
            secrets: Values by name.
            answers: To what the tool asks, in this order.
            report: Takes progress; None drops it.
            tool: The tool's name, for the log.
        """
        self.tenant_id = tenant_id
        self.agent_id = agent_id
        self.thread_id = thread_id
        self.run_id = run_id
        self.idempotency_key = idempotency_key or uuid.uuid4().hex
        self._directory = None if directory is None else Path(directory)
        self.log = _CallLog(_log, {"tool": tool, "run_id": run_id})
        self._ends_at_s = time.monotonic() + timeout_s
        self._secrets = dict(secrets or {})
        self._answers = tuple(answers)
        self._asked = 0
        self._asking = threading.Lock()
        self._report = report
        self._aborted = threading.Event()

    @property
    def directory(self) -> Path:
        """The agent's working directory, with the files that its file tools read and write.

        Raises:
            ToolFailure: The agent works without files.
        """
        if self._directory is None:
            raise ToolFailure("This tool works with files, which the agent's trust does not give it.")
        return self._directory

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

    def ask_user(
        self,
        question: str,
        *,
        options: Sequence[str] = (),
        only_options: bool = False,
        expires_in_s: float | None = None,
        default: str | None = None,
    ) -> str:
        """Return a person's answer. It may take days, and costs nothing meanwhile.

        The call ends here, and its run waits. Once there is an answer, the tool is called again from its beginning,
        with the same input and `idempotency_key`, and this returns the answer. So what must not happen twice belongs
        after the last question, or is done with that key; and a tool asks the same questions in the same order.

        Args:
            question: The question, in at most 10,000 characters.
            options: Choices that are offered, at most 20.
            only_options: Refuse an answer that is none of them.
            expires_in_s: How long to wait; None waits for ever.
            default: The answer if none is given in that time.

        Raises:
            NotAnswered: None was given in that time, and there is no default.
            ToolFailure: The tool asked something else before.
        """
        with self._asking:
            at, self._asked = self._asked, self._asked + 1
        if at >= len(self._answers):
            asked: dict[str, Any] = {"question": question, "options": list(options), "only_options": only_options}
            raise Asked({**asked, "expires_in_s": expires_in_s, "default": default})
        given = self._answers[at]
        if isinstance(given, str):
            return given
        if given.question != question.strip():
            raise ToolFailure(
                f"Question {at + 1} of this call is {question!r}, and was {given.question!r} before. A tool that asks "
                "a person is called again with the answer, and must then ask the same."
            )
        if given.text is None:
            raise NotAnswered(f"There was no answer in time to: {question}")
        return given.text

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
