"""The fleet of a session of tests, and the tenant of a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

from nova_workers.cli.projects.files import ProjectFiles, read_project
from nova_workers.client.sync.client import SyncNovaClient
from nova_workers.client.sync.paging import sync_iterate
from nova_workers.contracts.content import text_of
from nova_workers.contracts.http.tenants import TenantCreate
from nova_workers.contracts.http.wire import RunView, StatelessRunCreate
from nova_workers.contracts.waits import RunAnswer
from nova_workers.devstack.home import StackState, read_state
from nova_workers.devstack.process import ProcessSpec
from nova_workers.sdk.testing.providers import model_variables

_KEY_FILE: Final = "api_key"
_LOG_FILE: Final = "fleet.log"
_START_S: Final = 120.0
_STOP_S: Final = 30.0
_RUN_S: Final = 60.0
_POLL_S: Final = 0.05
_MOST_TIMES: Final = 100
"""The most times that the fleet previews of a trigger."""
_LOG_CHARS: Final = 4_000
_OF_AGENTS: Final = ("agent", "message", "orchestration")
"""Kinds of waits that other agents end."""
_NOT_GIVEN: Final = ("NOVA_", "ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_")
"""Variables that would let the fleet reach another one, or the provider of a model."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something in a conversation.

    Attributes:
        kind: What a person or a trigger said, what the agent said, a call of a tool, or its result.
        text: What was said; the text of a result.
        tool: The tool of a call or a result.
        input: Of a call.
        failed: Whether a result is an error.
    """

    kind: Literal["user", "agent", "call", "result"]
    text: str = ""
    tool: str = ""
    input: dict[str, Any] | None = None
    failed: bool = False


class LocalFleet:
    """A fleet in processes of its own, with servers and data below one folder. It ends with this process."""

    def __init__(self, root: Path, home: Path, *, model_url: str) -> None:
        """Start nothing.

        Args:
            root: The folder of the project.
            home: Where its data are. Its path is short.
            model_url: The server that its agents ask; it knows no other.
        """
        self.root = root
        self._home = home
        self._model_url = model_url
        self._process: subprocess.Popen[bytes] | None = None
        self._state: StackState | None = None

    def start(self) -> None:
        """Start it, and return once it serves.

        Raises:
            InvalidInput: The project's files are wrong.
            RuntimeError: It does not start; the message has the end of its log.
        """
        files = read_project(self.root)
        project = {"name": files.name, "folder": str(self.root), "tenant": "*"}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_GIVEN)}
        spec = ProcessSpec(
            name="fleet",
            argv=(sys.executable, "-m", "nova_workers.devstack", "--port", "0"),
            inherited=kept,
            env={
                **model_variables(self._model_url, files.agents),
                "NOVA_HOME": str(self._home),
                "NOVA_CONSOLE__ENABLED": "false",
                # Titles would be asked of the model.
                "NOVA_EFFECTS__ENABLED": "false",
                "NOVA_TOOLS__PROJECTS": json.dumps([project]),
            },
        )
        with (self._home / _LOG_FILE).open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our program
                spec.command(),
                env=spec.environment(),
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline_s = time.monotonic() + _START_S
        while self._state is None:
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"The fleet of the tests does not start. The end of its log:\n{self._log()}")
            time.sleep(_POLL_S)
            self._state = read_state(self._home)

    def stop(self) -> None:
        """Stop it, and wait until it is gone."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @contextmanager
    def tenant(self) -> Generator[Fleet]:
        """Make a tenant, and apply the project to it.

        Raises:
            InvalidInput: The project's files are wrong, each with its line.
            NovaError: The fleet refuses the project.
        """
        files = read_project(self.root)
        # Its worker has the project, and may start later than the API.
        body = files.request(allow_missing=True)
        assert self._state is not None  # noqa: S101 - it was started
        url, key = self._state.api_url, (self._home / _KEY_FILE).read_text(encoding="utf-8").strip()
        with SyncNovaClient(url, key) as operator:
            # As on the fleet of one machine: nothing bounds it.
            made = operator.tenants.create(TenantCreate(name="test", ceilings=None))
        with SyncNovaClient(url, made.key.key) as client:
            client.projects.apply(body)
            yield Fleet(client, files, tenant_id=made.id)

    def _log(self) -> str:
        return (self._home / _LOG_FILE).read_text(encoding="utf-8", errors="replace")[-_LOG_CHARS:]


class Fleet:
    """The fleet as a test has it.

    Attributes:
        client: A client with all rights of its tenant. See `nova_workers.client`.
        tenant_id: Of this test alone.
        clock: Of its triggers.
    """

    def __init__(self, client: SyncNovaClient, project: ProjectFiles, *, tenant_id: str) -> None:
        """Take a tenant to which a project was applied."""
        self.client = client
        self.tenant_id = tenant_id
        self.clock = Clock(client, project.name)

    def run(self, agent: str, message: str, *, thread: RunView | None = None, timeout_s: float = _RUN_S) -> RunView:
        """Send a message, and return its run once it has ended, or waits for a person.

        Args:
            agent: The agent's id.
            message: The text.
            thread: An earlier run, whose conversation it continues.
            timeout_s: The longest time to wait; then it is returned as it is.
        """
        if thread is None:
            body = StatelessRunCreate(message=message, agent_id=agent)
        elif thread.agent_id == agent:
            body = StatelessRunCreate(message=message, thread_id=thread.thread_id)
        else:
            raise AssertionError(f"The conversation is of the agent {thread.agent_id!r}, and not of {agent!r}.")
        return self._settled(self.client.runs.create(body).id, timeout_s)

    def answer(self, run: RunView, text: str | None = None, *, approve: bool | None = None) -> RunView:
        """Answer what a run waits for, and return it once it has ended or waits again.

        Args:
            run: One that waits.
            text: The answer to a question.
            approve: Whether a call is permitted.
        """
        given = {"text": text} if approve is None else {"approve": approve}
        self.client.runs.answer(run.id, RunAnswer.model_validate(given))
        return self._settled(run.id, _RUN_S)

    def transcript(self, run: RunView) -> list[Entry]:
        """Return the entries of a run's conversation, oldest first."""
        entries: list[Entry] = []
        names: dict[str, str] = {}
        for message in sync_iterate(self.client.threads.messages, run.thread_id):
            entries += _entries(message.role, message.content, names)
        return entries

    def _settled(self, run_id: str, timeout_s: float) -> RunView:
        deadline_s = time.monotonic() + timeout_s
        while True:
            run = self.client.runs.get(run_id)
            # What waits for other agents goes on by itself.
            waits = any(wait.request.kind not in _OF_AGENTS for wait in run.waits)
            if run.finished_at is not None or waits or time.monotonic() > deadline_s:
                return run
            time.sleep(_POLL_S)


@dataclass(frozen=True, slots=True)
class Fired:
    """An occurrence of a trigger that `Clock.advance` passed.

    Attributes:
        trigger: The trigger's key in the project.
        time: When its schedule has it, in its time zone.
        run: The run that it began, which has ended or waits.
    """

    trigger: str
    time: datetime
    run: RunView


class Clock:
    """The times of triggers: when they would fire, and what happens then, without waiting for it."""

    def __init__(self, client: SyncNovaClient, project: str) -> None:
        """Take the client of a tenant, and the project whose triggers it has."""
        self._client = client
        self._project = project
        self._now = datetime.now(UTC)

    def advance(self, by: timedelta, *, timeout_s: float = _RUN_S) -> Sequence[Fired]:
        """Let this much time pass for the schedules of the project's triggers, from the test's beginning on.

        What becomes due meanwhile fires in its order, each once the run before has ended or waits: triggers that are
        enabled, whatever their gates say. The fleet's clock stays, so that a message about the time has the real one.

        Args:
            by: The time that passes.
            timeout_s: The longest time of one run.
        """
        until = self._now + by
        due = sorted(
            ((at, key) for key, trigger_id in self._triggers().items() for at in self._due(key, trigger_id, until)),
            key=lambda occurrence: occurrence[0],
        )
        self._now = until
        return [Fired(key, at, self.fire(key, timeout_s=timeout_s)) for at, key in due]

    def next_times(self, trigger: str, count: int = 3) -> Sequence[datetime]:
        """Return the next times of a trigger of the project, in its time zone."""
        preview = self._client.triggers.preview(self._id_of(trigger), count=count)
        return [datetime.fromisoformat(each.local) for each in preview.firings]

    def fire(self, trigger: str, *, timeout_s: float = _RUN_S) -> RunView:
        """Let a trigger of the project fire now, also if it is not enabled, and return its run once it has ended."""
        firing = self._client.triggers.fire(self._id_of(trigger))
        if firing.run_id is None:
            raise AssertionError(f"The trigger {trigger!r} began no run: {firing.detail or firing.skip_reason}.")
        return self._client.runs.result(firing.run_id, timeout_s=timeout_s)

    def _due(self, key: str, trigger_id: str, until: datetime) -> list[datetime]:
        """Return the times of a trigger after the present one, up to `until`."""
        preview = self._client.triggers.preview(trigger_id, count=_MOST_TIMES)
        if not preview.enabled:
            return []
        if len(preview.firings) == _MOST_TIMES and preview.firings[-1].at <= until:
            raise AssertionError(
                f"The trigger {key!r} fires more than {_MOST_TIMES} times until {until.isoformat()}. Advance by less."
            )
        return [datetime.fromisoformat(each.local) for each in preview.firings if self._now < each.at <= until]

    def _triggers(self) -> dict[str, str]:
        """Return the ids of the project's triggers by their keys."""
        items = sync_iterate(self._client.projects.items, self._project)
        return {item.name: item.resource_id for item in items if item.kind == "trigger"}

    def _id_of(self, trigger: str) -> str:
        known = self._triggers()
        if trigger not in known:
            raise AssertionError(f"The project has no trigger {trigger!r}; it has: {', '.join(known) or 'none'}.")
        return known[trigger]


def _entries(role: str, content: Sequence[dict[str, Any]], names: dict[str, str]) -> Iterator[Entry]:
    for block in content:
        match block.get("type"):
            case "text":
                yield Entry("agent" if role == "assistant" else "user", text=block["text"])
            case "tool_use":
                names[block["id"]] = block["name"]
                yield Entry("call", tool=block["name"], input=block["input"])
            case "tool_result":
                tool = names.get(block["tool_use_id"], "")
                text = text_of(tuple(block.get("content") or ()))
                yield Entry("result", text=text, tool=tool, failed=bool(block.get("is_error")))
            case _:
                pass
