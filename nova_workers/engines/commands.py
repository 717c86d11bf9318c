"""Runs commands of agents: one process per command.

The SDK's `BashSession` keeps one shell for a session. Ours keeps none: a run may continue in another worker after any
step, where the shell's variables, directory and jobs would be lost without the model knowing. One shell per call has no
state to lose, needs no cleanup between calls, and allows a step's calls to run concurrently.
"""

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from nova_workers.base.child_process import Bounds, ChildResult, run_child
from nova_workers.base.errors import ToolFailure
from nova_workers.contracts.agents import Enclosure
from nova_workers.contracts.native import SHELL_TOOL
from nova_workers.contracts.ports import ShellOutcome
from nova_workers.shell_sandbox import Enclosed, ShellSandbox

_PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "LOGNAME")
"""Environment variables of the worker that commands get. An allow-list, so that unknown secrets stay out."""
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SHELL = "/bin/bash"


@dataclass(frozen=True, slots=True)
class ShellSettings:
    """How commands are run.

    Attributes:
        timeout_s: Time limit of a command if the model sets none.
        max_timeout_s: Longest time limit that the model may set.
        output_bytes: Limit of the output for the model: half from its beginning, half from its end.
        passed_on: Names of further environment variables for commands.
        sandbox: Confines the commands of every tenant; None does not.
        enclosing: Confines those of tenants with ceilings, and hides NOVA_HOME from those of others; None if this
            worker has no sandbox.
        why_none: Why it has none.
    """

    timeout_s: float = 120.0
    max_timeout_s: float = 600.0
    output_bytes: int = 32_768
    passed_on: tuple[str, ...] = ()
    sandbox: ShellSandbox | None = None
    enclosing: ShellSandbox | None = None
    why_none: str = "No sandbox is set up."


class CommandRunner:
    """Runs commands. Implements `nova_workers.contracts.ports.ShellRunner`."""

    def __init__(self, settings: ShellSettings) -> None:
        self._settings = settings

    async def run(
        self,
        command: str,
        *,
        cwd: str,
        writable: Sequence[str],
        readable: Sequence[str] = (),
        timeout_s: float | None = None,
        enclosure: Enclosure | None = None,
    ) -> ShellOutcome:
        """Run a command. See `ShellRunner.run`."""
        if "\x00" in command:
            raise ToolFailure(f"{SHELL_TOOL}: a command cannot contain NUL characters.", tool=SHELL_TOOL)
        settings = self._settings
        timeout_s = min(settings.timeout_s if timeout_s is None else timeout_s, settings.max_timeout_s)
        half = settings.output_bytes // 2
        try:
            words = [_SHELL, "--noprofile", "--norc", "-c", command]
            with self._confined(words, cwd, writable, readable, enclosure) as line:
                result = await run_child(
                    line.command,
                    Bounds(timeout_s, half, half),
                    env={**_environment(cwd, settings.passed_on, os.environ), **line.environment},
                    cwd=cwd,
                    passed=line.descriptors,
                    with_errors=True,
                )
                notes = _notes(line, failed=result.exit_code != 0)
        except OSError as error:
            raise ToolFailure(
                f"{SHELL_TOOL}: the command cannot be started: {error.strerror}", tool=SHELL_TOOL
            ) from error
        except ValueError as error:
            raise ToolFailure(f"{SHELL_TOOL}: {error}", tool=SHELL_TOOL) from error
        return _outcome(result, timeout_s, notes)

    @contextmanager
    def _confined(
        self,
        line: list[str],
        cwd: str,
        writable: Sequence[str],
        readable: Sequence[str],
        enclosure: Enclosure | None,
    ) -> Generator[Enclosed]:
        settings = self._settings
        is_enclosed = enclosure is not None and enclosure.sandbox
        if is_enclosed or readable:
            if settings.enclosing is None:
                whose = "of this tenant" if is_enclosed else "that may write in one directory alone"
                raise ToolFailure(
                    f"{SHELL_TOOL}: commands {whose} run in the sandbox, and this worker has none. {settings.why_none}",
                    tool=SHELL_TOOL,
                )
            # One without ceilings reaches what the machine does.
            egress = enclosure.egress if is_enclosed and enclosure is not None else "all"
            with settings.enclosing.enclosed(
                line,
                enclosure or Enclosure(tuple(readable)),
                cwd=cwd,
                writable=(cwd, *writable),
                read_only=readable,
                other_user=is_enclosed,
                egress=egress if settings.enclosing.network else "none",
            ) as enclosed:
                yield enclosed
        elif settings.sandbox is not None:
            with settings.sandbox.wrap(line, cwd, (cwd, *writable)) as wrapped:
                yield wrapped
        elif settings.enclosing is not None:
            yield Enclosed(settings.enclosing.hide(line, cwd), ())
        else:
            yield Enclosed(line, ())


def _environment(cwd: str, passed_on: Sequence[str], ours: Mapping[str, str]) -> dict[str, str]:
    env = {name: ours[name] for name in (*_PASSED_ON, *passed_on) if name in ours}
    env.setdefault("PATH", _DEFAULT_PATH)
    # Programs look for configuration and credentials in HOME, so HOME is the agent's directory, not the worker's home.
    return {**env, "HOME": cwd, "TERM": "dumb", "SHELL": _SHELL}


def _notes(line: Enclosed, *, failed: bool) -> list[str]:
    """Return the notes about the network that explain to a model why a command failed."""
    refused = [] if line.passage is None else [f"[network: {why}]" for why in line.passage.refusals]
    return [*refused, *([f"[no network: {line.no_network}]"] if failed and line.no_network else [])]


def _outcome(result: ChildResult, timeout_s: float, notes: Sequence[str]) -> ShellOutcome:
    ended = [result.text().rstrip("\n"), *notes]
    if result.exit_code is None:
        ended.append(f"[stopped: it took longer than {timeout_s:g} s]")
    elif result.exit_code != 0:
        ended.append(f"[exit code {result.exit_code}]")
    return ShellOutcome("\n".join(ended).lstrip("\n"), failed=result.exit_code != 0)
