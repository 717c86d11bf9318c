"""Native tools in a directory of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_workers.base.errors import ToolFailure
from nova_workers.contracts.content import text_of
from nova_workers.contracts.engine import EngineOptions, ToolCall, TrustLevel
from nova_workers.engines.native import NativeTools, ShellSettings, Toolset, WebSearchSettings
from nova_workers.engines.turn import ToolOutcome


class NativeToolCaller:
    """Calls tools as a model does."""

    def __init__(self, native: NativeTools, workdir: Path) -> None:
        self.native = native
        self.workdir = workdir
        self.tools = self.toolset()

    def toolset(self, trust: TrustLevel = "unrestricted", *directories: Path, cwd: bool = True) -> Toolset:
        """Return the tools of a trust, in the working directory and others."""
        options = EngineOptions(cwd=str(self.workdir) if cwd else None, directories=tuple(map(str, directories)))
        return self.native.for_turn(options, trust)

    def with_tools(self, tools: Toolset) -> NativeToolCaller:
        """Return a caller of other tools."""
        caller = NativeToolCaller(self.native, self.workdir)
        caller.tools = tools
        return caller

    async def outcome(self, name: str, **given: Any) -> ToolOutcome:
        """Call a tool."""
        return await self.tools.call(ToolCall("toolu_1", name, given, 0, 0))

    async def call(self, name: str, **given: Any) -> str:
        """Call a tool and return its text."""
        return text_of((await self.outcome(name, **given)).content)

    async def failure(self, name: str, **given: Any) -> str:
        """Call a tool that must refuse, and return why."""
        with pytest.raises(ToolFailure) as caught:
            await self.outcome(name, **given)
        return caught.value.message


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[NativeToolCaller]:
    """All native tools but WebFetch, in a new directory."""
    workdir = tmp_path / "work"
    workdir.mkdir()
    native = NativeTools(shell=ShellSettings(output_bytes=2_000), web_search=WebSearchSettings())
    yield NativeToolCaller(native, workdir)
    native.close()
