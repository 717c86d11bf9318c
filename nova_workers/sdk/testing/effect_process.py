"""The process in which tests call effects, and interrupt the calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from nova_workers.contracts.ended_runs import EndedRun


@dataclass(frozen=True, slots=True)
class Call:
    """What became of a call.

    Attributes:
        points: How many points it passed: lines of the effect's package, and returns from its functions.
        error: Type and message of what it raised.
        output: What it printed and logged.
        killed: Whether it was killed at a point.
        stopped: The process that is stopped at a point, and goes on by `EffectProcess.resume`.
    """

    points: int = 0
    error: str | None = None
    output: str = ""
    killed: bool = False
    stopped: int | None = None


class EffectProcess:
    """The process in which the effects of a module are called. One call is made at a time, beside stopped ones."""

    def __init__(self, module: str) -> None:
        """Start it.

        Args:
            module: The module that declares the effects, as an entry point names it.
        """
        self._process = subprocess.Popen(  # noqa: S603 - our program, and a module that the test names
            [sys.executable, "-m", "nova_workers.sdk.interrupted", module],
            # Where the tests find modules, it does.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.names: tuple[str, ...] = tuple(self._answer()["effects"])
        """The effects of the module."""

    def call(
        self,
        effect: str,
        run: EndedRun,
        key: str,
        secrets: Mapping[str, str],
        *,
        kill_at: int | None = None,
        stop_at: int | None = None,
    ) -> Call:
        """Call an effect.

        Args:
            effect: Its name.
            run: What it gets.
            key: The idempotency key.
            secrets: Those that it may read.
            kill_at: The point at which it is killed, from 1.
            stop_at: The point at which it is stopped, from 1.
        """
        return self._ask(
            effect=effect,
            run=run.model_dump(mode="json"),
            key=key,
            secrets=dict(secrets),
            kill_at=kill_at,
            stop_at=stop_at,
        )

    def resume(self, stopped: Call) -> Call:
        """Let a stopped call go on to its end."""
        return self._ask(resume=stopped.stopped)

    def close(self) -> None:
        """End it, and stopped calls with it."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _ask(self, **question: Any) -> Call:
        assert self._process.stdin is not None  # noqa: S101 - narrows the type
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return Call(**self._answer())

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None  # noqa: S101 - narrows the type
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError("The process of the effect ended; its reason is above.")
        answer: dict[str, Any] = json.loads(line)
        if "problem" in answer:
            raise AssertionError(answer["problem"])
        return answer
