"""Puts programs into a sandbox: bubblewrap's, or one of our own launcher."""

from nova_workers.shell_sandbox.bounds import CommandBounds
from nova_workers.shell_sandbox.finding import find_sandbox
from nova_workers.shell_sandbox.owners import SANDBOX_UID, make_private
from nova_workers.shell_sandbox.programs import SandboxChoice, SandboxKind
from nova_workers.shell_sandbox.sandbox import Enclosed, NoSandbox, ShellSandbox

__all__ = [
    "SANDBOX_UID",
    "CommandBounds",
    "Enclosed",
    "NoSandbox",
    "SandboxChoice",
    "SandboxKind",
    "ShellSandbox",
    "find_sandbox",
    "make_private",
]
