"""Finds this machine's sandbox: the first kind in which a trial command reaches nothing that it must not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from nova_workers.base.confined import PrivateFiles
from nova_workers.base.errors import ConfigurationError
from nova_workers.shell_sandbox.bounds import CommandBounds
from nova_workers.shell_sandbox.cgroups import CommandCgroups
from nova_workers.shell_sandbox.features import missing_features
from nova_workers.shell_sandbox.programs import SandboxChoice, SandboxKind, find_program
from nova_workers.shell_sandbox.sandbox import ShellSandbox
from nova_workers.shell_sandbox.trial import try_out


def find_sandbox(
    *,
    network: bool,
    hidden: Sequence[str] = (),
    private: PrivateFiles | None = None,
    choice: SandboxChoice = "auto",
    every_tenant: bool = False,
    bounds: CommandBounds | None = None,
    cgroup: Path | None = None,
) -> ShellSandbox:
    """Return this machine's sandbox, with the report of its trial. Blocks for some 100 ms.

    Args:
        network: Whether commands reach the network.
        hidden: Directories that appear empty, besides those that always do.
        private: The fleet's own files.
        choice: Which kind; ``auto`` is the first that works.
        every_tenant: Whether it must also confine the commands of tenants without ceilings.
        bounds: What a command may use up; None takes the defaults.
        cgroup: The directory below which cgroups of commands are made; None looks for one.

    Raises:
        ConfigurationError: None that `choice` permits can be made on this machine. The message has the reason of each
            and the features that are missing.
    """
    bounds = bounds or CommandBounds()
    cgroups, missing = _cgroups(cgroup, bounds)
    reasons: list[str] = []
    for kind in get_args(SandboxKind) if choice == "auto" else (choice,):
        try:
            sandbox = ShellSandbox(
                find_program(kind), network, tuple(hidden), private, kind, bounds=bounds, cgroups=cgroups
            )
            return replace(sandbox, trial=try_out(sandbox, missing, every_tenant=every_tenant))
        except ConfigurationError as error:
            reasons.append(error.message)
    if missing:
        reasons.append(f"Missing here: {'; '.join(missing)}.")
    raise ConfigurationError(" ".join(reasons))


def _cgroups(configured: Path | None, bounds: CommandBounds) -> tuple[CommandCgroups | None, tuple[str, ...]]:
    """Return the maker of cgroups, and the features that are missing here."""
    try:
        return CommandCgroups.find(configured, bounds), missing_features()
    except ConfigurationError as error:
        if configured is not None:
            raise ConfigurationError(f"NOVA_TOOLS__COMMAND_CGROUP is {str(configured)!r}: {error.message}") from error
        return None, (*missing_features(), error.message)
