"""The real programs in front of a local model server, for tests that hold for each of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from nova_workers.contracts.engine import EngineOptions
from nova_workers.engines.native import NativeTools
from nova_workers.engines.programs.engine import ProgramEngine
from nova_workers.engines.programs.models import ProgramModels
from nova_workers.engines.programs.vendor import ProgramSettings, Vendor
from tests.support.servers.installed_programs import program_path
from tests.support.servers.model_server import ModelServer, Part, Stream

KEY = "k-secret-of-the-provider"


class ProgramStage:
    """One program and its model server."""

    def __init__(
        self, vendor: Vendor, server: ModelServer, *, model: str, price_list: str, url: str, tool: str
    ) -> None:
        self.name = vendor.name
        self.server = server
        self.model = model
        self._vendor = vendor
        self._price_list = price_list
        self._url = url
        self._tool = tool
        self._made: list[ProgramEngine] = []

    def engine(self, native: NativeTools | None = None, **given: Any) -> ProgramEngine:
        """Return an engine; each is another worker. `given` replaces fields of its settings."""
        settings = ProgramSettings(
            {"PATH": os.environ["PATH"]}, program_path(self.name), KEY, f"{self.server.url}{self._url}"
        )
        models = ProgramModels(self.name, price_list=self._price_list)
        engine = ProgramEngine(self._vendor, replace(settings, **given), models, max_retries=0, native=native)
        self._made.append(engine)
        return engine

    def options(self, **given: Any) -> EngineOptions:
        """Return options on the tests' model."""
        return replace(EngineOptions(model=self.model), **given)

    def says(self, text: str, **usage: int) -> Stream:
        """Return a response with text."""
        return Stream((Part("text", [text]),), usage=usage or {"input_tokens": 100, "output_tokens": 10})

    def calls(self, *calls: tuple[str, dict[str, Any]], text: str = "", step: int = 0, **usage: int) -> Stream:
        """Return a response that calls tools of the bridge."""
        parts = [Part("text", [text])] if text else []
        parts += [
            Part("tool", (f"call_{step}_{at}", f"{self._tool}{name}", given)) for at, (name, given) in enumerate(calls)
        ]
        return Stream(tuple(parts), usage=usage or {"input_tokens": 100, "output_tokens": 10})

    def sent(self, at: int = -1) -> str:
        """Return what a request's conversation says."""
        return "\n".join(text for _, text in self.server.conversation(at))

    async def close(self) -> None:
        """Close the engines."""
        for engine in self._made:
            await engine.close()


def program_homes() -> dict[Path, dict[str, int]]:
    """Return the private directories of the programs that run, with the modes of what matters in each."""
    homes = {Path(process.environ()["HOME"]).parent for process in program_processes()}
    return {home: {name: (home / name).stat().st_mode & 0o777 for name in (".", "tools")} for home in homes}


def program_processes() -> Iterator[psutil.Process]:
    """Yield the processes that work in the home of a program."""
    for process in psutil.Process().children(recursive=True):
        try:
            if "nova-program-" in " ".join((*process.cmdline(), process.cwd())):
                yield process
        except psutil.Error:
            continue
