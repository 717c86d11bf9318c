"""Calls effects in forks that are killed or stopped in the middle of a call, for the contract of effects.

    python -m nova_workers.sdk.interrupted MODULE

imports a module and forks for each call that it is asked for, in one line of JSON each. It has no thread, so that a
fork of it is whole, and imports nothing that tests need.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from nova_workers.base.errors import ConfigurationError
from nova_workers.sdk.context import ToolContext
from nova_workers.sdk.loading import load_code
from nova_workers.sdk.signatures import FunctionTool


def main() -> None:
    """Serve calls until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    effects: dict[str, Any] = {}
    try:
        effects = load_code(sys.argv[1]).effects
    except ConfigurationError as error:
        _write(answers, {"problem": error.message})
        return
    _write(answers, {"effects": list(effects)})
    stopped: dict[int, Path] = {}
    for line in sys.stdin:
        question = json.loads(line)
        resumed = question.get("resume")
        if resumed is None:
            with tempfile.NamedTemporaryFile(delete=False) as report:
                path = Path(report.name)
            process = os.fork()
            if process == 0:
                _make(effects[question["effect"]], question, path)
        else:
            process, path = resumed, stopped.pop(resumed)
            os.kill(process, signal.SIGCONT)
        _, status = os.waitpid(process, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            stopped[process] = path
            _write(answers, {"stopped": process})
            continue
        report = path.read_text("utf-8")
        path.unlink()
        _write(answers, json.loads(report) if report else _ended_early(status))


def _ended_early(status: int) -> dict[str, Any]:
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return {"killed": True}
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
        return {"error": "It did not end within its time limit."}
    return {"error": "It ended the process."}


def _make(effect: FunctionTool, question: dict[str, Any], report: Path) -> None:
    """Make a call, in a fork, which ends here."""
    with tempfile.TemporaryFile() as output:
        for descriptor in (1, 2):
            os.dup2(output.fileno(), descriptor)
        context = ToolContext(
            run_id=question["run"]["run_id"],
            tenant_id=question["run"]["tenant_id"],
            idempotency_key=question["key"],
            secrets=question["secrets"],
            timeout_s=effect.options.timeout_s,
            tool=effect.name,
        )
        (parameter,) = effect.input_schema["properties"]
        arguments = effect.arguments({parameter: question["run"]}, context)
        points = _Points(effect, question["kill_at"], question["stop_at"])
        error: str | None = None
        signal.alarm(math.ceil(effect.options.timeout_s))
        points.begin()
        try:
            if effect.is_async:
                asyncio.run(effect.function(**arguments))
            else:
                effect.function(**arguments)
        except BaseException as raised:
            # Code of users may raise anything, and the tests get it.
            error = f"{type(raised).__name__}: {raised}"
        points.end()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        output.seek(0)
        words = output.read().decode(errors="replace")
    report.write_text(json.dumps({"points": points.passed, "error": error, "output": words}), "utf-8")
    os._exit(0)


class _Points:
    """Counts the points of a call, and acts at one of them."""

    def __init__(self, effect: FunctionTool, kill_at: int | None, stop_at: int | None) -> None:
        self.passed = 0
        module = sys.modules[effect.function.__module__]
        file = Path(str(module.__file__)).resolve()
        # A package is counted as a whole.
        depth = module.__name__.count(".")
        self._root = str(file.parents[depth - 1]) + os.sep if depth else str(file)
        self._counts: dict[str, bool] = {}
        self._kill_at, self._stop_at = kill_at, stop_at

    def begin(self) -> None:
        threading.settrace(self._trace)
        sys.settrace(self._trace)

    def end(self) -> None:
        sys.settrace(None)
        threading.settrace(None)  # pyright: ignore[reportArgumentType] - as the documentation has it

    def _trace(self, frame: FrameType, _: str, __: Any) -> Any:
        file = frame.f_code.co_filename
        if file not in self._counts:
            self._counts[file] = str(Path(file).resolve()).startswith(self._root)
        return self._pass if self._counts[file] else None

    def _pass(self, _: FrameType, event: str, __: Any) -> Any:
        if event in ("line", "return"):
            self.passed += 1
            if self.passed == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if self.passed == self._stop_at:
                os.kill(os.getpid(), signal.SIGSTOP)
        return self._pass


def _write(answers: Any, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
