"""`nova dev`: the embedded fleet with a project, which is applied on each change of its files."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from nova_workers.base.config import load_settings
from nova_workers.base.errors import NovaError, Unavailable
from nova_workers.cli.command import open_session
from nova_workers.cli.projects.commands import DirectoryOption, send_project
from nova_workers.cli.projects.files import AGENTS, PYPROJECT, SKILLS, TRIGGERS, find_root, read_project
from nova_workers.cli.projects.showing import show_plan
from nova_workers.cli.target import read_state
from nova_workers.cli.terminal.output import Output

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_EVERY_S: Final = 0.3
"""The time between two looks at the files, each of which is a call of `stat` for a file."""
_CODE: Final = ("tools", "code")
"""The folders that the fleet imports when it starts."""
_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Stamps = Mapping[str, tuple[int, int]]
"""The time of change and the size of each file, by its path."""


@app.command("dev")
def dev(
    directory: DirectoryOption = Path(),
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port of the API.")] = None,
) -> None:
    """Start the fleet on this machine with a project, and apply the project on each change of its files.

    What was changed on this fleet is overwritten by the files; nothing is deleted. A change in `tools/` or
    `code/` restarts the fleet: turns that run go on after it. Mistakes are shown with file and line. Ctrl-C stops all.
    """
    root = find_root(directory)
    raise typer.Exit(asyncio.run(_Dev(root, port).run()))


class _Dev:
    def __init__(self, root: Path, port: int | None) -> None:
        self._root = root
        self._port = port
        self._out = Output(json_mode=False)

    async def run(self) -> int:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in _STOPPING:
            loop.add_signal_handler(number, stop.set)
        while True:
            tools = tool_stamps(self._root)
            fleet = await self._start()
            watching = asyncio.create_task(watch(self._root, self._out, tools))
            ended, stopped = asyncio.create_task(fleet.wait()), asyncio.create_task(stop.wait())
            try:
                await asyncio.wait({ended, watching, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    return ended.result()
                if not stopped.done() and watching.done():
                    watching.result()
                    self._out.note("project: tools changed; the fleet restarts")
            finally:
                watching.cancel()
                stopped.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watching
                if fleet.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        fleet.send_signal(signal.SIGTERM)
                    await fleet.wait()
            if stop.is_set():
                return 0

    async def _start(self) -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "nova_workers.devstack"]
        if self._port is not None:
            command += ["--port", str(self._port)]
        # A group of its own: Ctrl-C reaches it once, from here.
        return await asyncio.create_subprocess_exec(*command, env=self._environment(), process_group=0)

    def _environment(self) -> dict[str, str]:
        if not any((self._root / name).is_dir() for name in _CODE):
            return dict(os.environ)
        projects = [project.model_dump(mode="json", exclude_none=True) for project in load_settings().tools.projects]
        own = {"name": read_project(self._root).name, "folder": str(self._root)}
        projects = [each for each in projects if each["name"] != own["name"]]
        return {**os.environ, "NOVA_TOOLS__PROJECTS": json.dumps([*projects, own])}


async def watch(
    root: Path, out: Output, tools: Stamps, *, api_url: str | None = None, api_key: str | None = None
) -> None:
    """Apply a project at each change of its files. Returns when a tool has changed.

    Args:
        root: Its folder.
        out: For plans and mistakes.
        tools: The stamps of its tools, as the fleet has loaded them.
        api_url: The API. Default: that of the fleet of this home.
        api_key: The key. Default: the first key of this home.
    """
    applied: Stamps | None = None
    while await asyncio.to_thread(tool_stamps, root) == tools:
        present = await asyncio.to_thread(_project_stamps, root)
        if present != applied and await _apply(root, out, api_url, api_key):
            applied = present
        await asyncio.sleep(_EVERY_S)


def tool_stamps(root: Path) -> Stamps:
    """Return the stamps of the tools and agents in Python of a project's folder."""
    return {path: stamp for name in _CODE for path, stamp in _stamps(root / name).items()}


async def _apply(root: Path, out: Output, api_url: str | None, api_key: str | None) -> bool:
    """Apply a project. False while the fleet cannot be reached, as when it starts."""
    try:
        if api_url is None and not read_state(load_settings().home):
            # The fleet of this home has not written where it is: its API may have any port.
            return False
        files = await asyncio.to_thread(read_project, root)
        body = files.request(on_drift="overwrite", allow_missing=True)
        async with open_session(json_mode=False, api_url=api_url, api_key=api_key) as session:
            plan = await send_project(session, files, body, "apply")
        if plan.steps:
            show_plan(out, plan)
            out.stdout.flush()
    except Unavailable:
        return False
    except NovaError as error:
        for line in error.message.splitlines():
            out.note(f"project: {line}", "red")
    return True


def _project_stamps(root: Path) -> Stamps:
    stamps = dict(_stamps(root / AGENTS)) | dict(_stamps(root / SKILLS))
    for name in (PYPROJECT, TRIGGERS):
        stamps |= _stamp(root / name)
    return stamps


def _stamps(folder: Path) -> Stamps:
    stamps: dict[str, tuple[int, int]] = {}
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__"))]
        for name in names:
            stamps |= _stamp(Path(parent) / name)
    return stamps


def _stamp(path: Path) -> dict[str, tuple[int, int]]:
    try:
        found = path.stat()
    except OSError:
        # It was removed meanwhile.
        return {}
    return {str(path): (found.st_mtime_ns, found.st_size)}
