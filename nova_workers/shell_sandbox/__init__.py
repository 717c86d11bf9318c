"""Puts programs into a sandbox: bubblewrap's, or one of our own launcher."""

from nova_workers.shell_sandbox.programs import SandboxChoice, SandboxKind
from nova_workers.shell_sandbox.sandbox import SANDBOX_UID, Enclosed, ShellSandbox

__all__ = ["SANDBOX_UID", "Enclosed", "SandboxChoice", "SandboxKind", "ShellSandbox"]
