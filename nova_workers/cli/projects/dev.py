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
from nova_workers.cli.projects.building import listing_command, problem_of_listing
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
_IMPORT_S: Final = 20.0
"""What importing them may take: the person who saved a file waits for it."""
_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Stamps = Mapping[str, tuple[int, int]]
"""The time of change and the size of each file, by its path."""


@app.command("dev")
def dev(
    directory: DirectoryOption = Path(),
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port of the API.")] = None,
) -> None:
    """Start the fleet on this machine with a project, and apply the project on each change of its files.

    What was changed on this fleet is overwritten by the files; nothing is deleted. After a change in `tools/` or
    `code/`, API and workers restart: turns that run go on. Code that cannot be imported changes nothing: the fleet
    keeps what it has. Mistakes are shown with file and line. Ctrl-C stops all.
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
            environment = self._environment()
            fleet = await self._start(environment)
            following = asyncio.create_task(self._follow(fleet, environment))
            ended, stopped = asyncio.create_task(fleet.wait()), asyncio.create_task(stop.wait())
            try:
                await asyncio.wait({ended, following, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    return ended.result()
                if not stopped.done():
                    following.result()
                    self._out.note("project: its name or its first code is new; the fleet restarts")
            finally:
                following.cancel()
                stopped.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await following
                if fleet.returncode is None:
                    _signal(fleet, signal.SIGTERM)
                    await fleet.wait()
            if stop.is_set():
                return 0

    async def _start(self, environment: Mapping[str, str]) -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "nova_workers.devstack"]
        if self._port is not None:
            command += ["--port", str(self._port)]
        # A group of its own: Ctrl-C reaches it once, from here.
        return await asyncio.create_subprocess_exec(*command, env=environment, process_group=0)

    async def _follow(self, fleet: asyncio.subprocess.Process, environment: Mapping[str, str]) -> None:
        """Keep a fleet as the files are. Returns when that needs a fleet with another environment."""
        code = tool_stamps(self._root)
        await self._code_imports()
        while True:
            await watch(self._root, self._out, code)
            # An editor may write several files, and one of them in parts.
            await asyncio.sleep(_EVERY_S)
            code = tool_stamps(self._root)
            # Of a project that cannot be read `watch` shows the mistake.
            with contextlib.suppress(NovaError):
                if self._environment() != environment:
                    return
            if await self._code_imports():
                await self._reload(fleet)

    async def _code_imports(self) -> bool:
        """Return whether the fleet could use the code of the project; if not, show why."""
        if not tool_stamps(self._root):
            return True
        problem = await problem_of_code(self._root)
        if problem is not None:
            self._out.note(f"project: {problem}", "red")
        return problem is None

    async def _reload(self, fleet: asyncio.subprocess.Process) -> None:
        """Restart API and workers. Returns when the new ones serve, or the fleet has ended."""
        reloads: int | None = None
        while fleet.returncode is None:
            state = read_state(load_settings().home)
            # Before it has written where it is, it would take the signal as its end.
            if state.get("pid") == fleet.pid:
                if reloads is None:
                    reloads = state["reloads"]
                    _signal(fleet, signal.SIGUSR1)
                elif state["reloads"] != reloads:
                    return
            await asyncio.sleep(_EVERY_S)

    def _environment(self) -> dict[str, str]:
        if not any((self._root / name).is_dir() for name in _CODE):
            return dict(os.environ)
        projects = [project.model_dump(mode="json", exclude_none=True) for project in load_settings().tools.projects]
        own = {"name": read_project(self._root).name, "folder": str(self._root)}
        projects = [each for each in projects if each["name"] != own["name"]]
        return {**os.environ, "NOVA_TOOLS__PROJECTS": json.dumps([*projects, own])}


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


async def problem_of_code(root: Path) -> str | None:
    """Return why the tools and the code of a project cannot be imported, with file and line; None if they can."""
    command = (*listing_command(root), "--import-timeout", str(_IMPORT_S))
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        process_group=0,
    )
    try:
        async with asyncio.timeout(2 * _IMPORT_S):
            out, err = await process.communicate()
    except TimeoutError:
        return f"tools/, code/: they were not imported within {_IMPORT_S:g} s."
    finally:
        # Code that is imported may have started processes, which hold the pipes.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return problem_of_listing(root, process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace"))


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
