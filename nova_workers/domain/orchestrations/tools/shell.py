"""The tool that runs shell commands, for agents that may use the native Bash."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from nova_workers.base.errors import InvalidInput, ToolFailure
from nova_workers.contracts.native import SHELL_TOOL, native_tools
from nova_workers.contracts.orchestration import RUN_BASH
from nova_workers.contracts.ports import ShellRunner
from nova_workers.domain.capabilities.rules.seam import CapabilityContext, ToolDeclaration, ToolInput
from nova_workers.domain.orchestrations.tools.seam import Declarations


class _RunBash(ToolInput):
    command: Annotated[str, Field(min_length=1, max_length=100_000, description="The command.")]
    timeout: Annotated[float | None, Field(gt=0, description="Most seconds that it may take.")] = None
    cwd: Annotated[
        str | None,
        Field(max_length=1_000, description="A directory within your working directories. Leave it out for yours."),
    ] = None


class _Shell:
    def __init__(self, runner: ShellRunner) -> None:
        self._runner = runner

    async def run_bash(self, context: CapabilityContext, given: _RunBash) -> str:
        cwd = _directory(context, given.cwd)
        roots = _roots(context)
        done = await self._runner.run(
            given.command,
            cwd=cwd,
            writable=roots,
            readable=context.readable,
            timeout_s=given.timeout,
            enclosure=context.enclosure,
        )
        if done.failed:
            raise ToolFailure(done.text, tool=RUN_BASH)
        return done.text


def shell_tools(runner: ShellRunner) -> Declarations:
    """Return the tool. The permission pipeline has judged each call of it as one of the native Bash."""
    return (
        ToolDeclaration(
            RUN_BASH,
            "Run a command with bash and return what it prints, errors included. Each call is a new shell.",
            _RunBash,
            _Shell(runner).run_bash,
        ),
    )


def may_run_commands(context: CapabilityContext) -> bool:
    """Return whether the agent may use the native Bash, and has a directory to run commands in."""
    permitted = native_tools(context.agent.trust, context.agent.native_tools)
    return SHELL_TOOL in permitted and bool(_roots(context))


def _roots(context: CapabilityContext) -> tuple[str, ...]:
    return (*filter(None, (context.cwd,)), *(() if context.readable else context.agent.directories))


def _directory(context: CapabilityContext, wanted: str | None) -> str:
    roots = [Path(root).resolve() for root in _roots(context)]
    path = roots[0] if wanted is None else (roots[0] / wanted).resolve()
    if not any(path.is_relative_to(root) for root in roots) or not path.is_dir():
        permitted = ", ".join(map(repr, map(str, roots)))
        raise InvalidInput(f"cwd: {wanted!r} is not a directory within {permitted}.", field="cwd")
    return str(path)
