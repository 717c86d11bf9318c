"""The native tools: files, search, web and shell, offered by trust."""

from nova_workers.engines.commands import CommandRunner, ShellSettings
from nova_workers.engines.native.tools import NativeTools, Toolset, TurnTools, WebSearchSettings

__all__ = ["CommandRunner", "NativeTools", "ShellSettings", "Toolset", "TurnTools", "WebSearchSettings"]
