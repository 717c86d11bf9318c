"""Finds this machine's sandbox: the first kind in which a trial command reaches nothing that it must not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from nova_workers.confined import PrivateFiles
from nova_workers.errors import ConfigurationError
from nova_workers.shell_sandbox.features import missing_features
from nova_workers.shell_sandbox.programs import SandboxChoice, SandboxKind, find_program
from nova_workers.shell_sandbox.sandbox import ShellSandbox
from nova_workers.shell_sandbox.trial import try_out

__all__ = ["find_sandbox"]


def find_sandbox(
    *,
    network: bool,
    hidden: Sequence[str] = (),
    private: PrivateFiles | None = None,
    choice: SandboxChoice = "auto",
    every_tenant: bool = False,
) -> ShellSandbox:
    """Return this machine's sandbox, with the report of its trial. Blocks for some 100 ms.

    Args:
        network: Whether commands reach the network.
        hidden: Directories that appear empty, besides those that always do.
        private: The fleet's own files.
        choice: Which kind; ``auto`` is the first that works.
        every_tenant: Whether it must also confine the commands of tenants without ceilings.

    Raises:
        ConfigurationError: None that `choice` permits can be made on this machine. The message has the reason of each
            and the features that are missing.
    """
    reasons: list[str] = []
    for kind in get_args(SandboxKind) if choice == "auto" else (choice,):
        try:
            sandbox = ShellSandbox(find_program(kind), network, tuple(hidden), private, kind)
            return replace(sandbox, trial=try_out(sandbox, every_tenant=every_tenant))
        except ConfigurationError as error:
            reasons.append(error.message)
    if missing := missing_features():
        reasons.append(f"Missing here: {'; '.join(missing)}.")
    raise ConfigurationError(" ".join(reasons))
