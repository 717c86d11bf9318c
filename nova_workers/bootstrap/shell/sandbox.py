"""Finds the sandbox of a machine, as the settings want it."""

from __future__ import annotations

from nova_workers.base.config import Settings
from nova_workers.base.confined import PrivateFiles
from nova_workers.shell_sandbox import CommandBounds, ShellSandbox, find_sandbox


def sandbox_of(settings: Settings) -> ShellSandbox:
    """Return this machine's sandbox after a trial. Blocks for some 100 ms.

    Raises:
        ConfigurationError: There is none; the message says why.
    """
    tools = settings.tools
    private = PrivateFiles(settings.home, settings.workspace_root)
    return find_sandbox(
        network=tools.shell_sandbox_network,
        hidden=(str(private.home), str(private.workspace)),
        private=private,
        choice=tools.sandbox,
        every_tenant=tools.shell_sandbox,
        bounds=CommandBounds(
            memory_bytes=tools.command_memory_bytes,
            processes=tools.command_processes,
            open_files=tools.command_open_files,
            file_bytes=tools.command_file_bytes,
            tmpfs_bytes=tools.command_tmpfs_bytes,
        ),
        cgroup=tools.command_cgroup,
    )
