"""`nova build` and `nova install`: a project as a wheel, and a wheel as a project on a machine of the fleet."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from nova_workers.base.config import load_settings
from nova_workers.base.errors import InvalidInput
from nova_workers.base.project_files import LOCK, digest_of_code, is_code, is_hidden
from nova_workers.base.project_folders import unpack_project
from nova_workers.base.release import DISTRIBUTION
from nova_workers.base.wheels import ProjectWheel, locked_requirements, normalized
from nova_workers.cli.projects.commands import DirectoryOption
from nova_workers.cli.projects.files import AGENTS, PYPROJECT, SKILLS, TRIGGERS, find_root, read_project
from nova_workers.cli.terminal.output import JsonOption, Output

app = typer.Typer(add_completion=False, rich_markup_mode=None)

DIGEST_CHARS: Final = 12
"""The length of a digest as people compare it."""

_CODE: Final = ("tools", "code")
_WHOLE: Final = (AGENTS, SKILLS, *_CODE)
"""The folders of which every file is in the wheel; of others it has the modules."""
_SINGLE: Final = (PYPROJECT, TRIGGERS, LOCK)
_NOT_BUILT: Final = frozenset({"tests", "dist", "build", "schemas"})
_IMPORT_S: Final = 90.0


@app.command("build")
def build(
    directory: DirectoryOption = Path(),
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Where the wheel goes. Default: dist/.")
    ] = None,
    json_mode: JsonOption = False,
) -> None:
    """Make a wheel of the project: its agents, skills, triggers, tools and code, with its lock.

    The same files make the same wheel. Nothing is made of a project with a mistake, or whose tools or code cannot be
    imported: each mistake is shown with its file and line.
    """
    root = find_root(directory)
    wheel = build_wheel(root)
    target = (out or root / "dist") / wheel.file_name
    content = wheel.to_bytes()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    digest = digest_of_code(wheel.files)[:DIGEST_CHARS]
    Output(json_mode=json_mode).done(
        {"wheel": str(target), "project": wheel.name, "version": wheel.version, "code": digest},
        f"built {target}",
        about=f"{wheel.name} {wheel.version}, code {digest}, {len(wheel.files)} files, {len(content)} bytes",
    )


@app.command("install")
def install(
    wheels: Annotated[list[Path], typer.Argument(metavar="WHEEL…", help="What `nova build` made.")],
    json_mode: JsonOption = False,
) -> None:
    """Unpack projects with the packages of their locks, so that processes of the fleet find them when they start.

    They are put where NOVA_TOOLS__PROJECT_ROOT says. An API or a worker that is given a wheel does the same; an image
    has it done when it is built.
    """
    settings = load_settings()
    root = settings.tools.project_root or settings.home / "projects"
    folders = [str(unpack_project(wheel, root)) for wheel in wheels]
    Output(json_mode=json_mode).done({"folders": folders}, "\n".join(f"installed {folder}" for folder in folders))


def build_wheel(root: Path) -> ProjectWheel:
    """Return the wheel of a project, which imports.

    Raises:
        InvalidInput: The project has a mistake; all of them, with file and line.
    """
    project = read_project(root)
    problems = list(project.problems)
    document = tomllib.loads((root / PYPROJECT).read_text("utf-8"))
    version = document["project"].get("version") if isinstance(document.get("project"), dict) else None
    if not isinstance(version, str):
        problems.append(f"{PYPROJECT}: there is no `version` in [project]; expected one such as '0.1.0'.")
    problems += _problems_of_lock(root, document.get("project", {}).get("dependencies", []))
    if problems:
        raise InvalidInput("\n".join(problems))
    wheel = ProjectWheel(project.name, str(version), _files_of(root))
    if any(path.startswith(tuple(f"{name}/" for name in _CODE)) for path in wheel.files):
        _require_imports(wheel)
    return wheel


def _files_of(root: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for place, folders, names in os.walk(root):
        relative = Path(place).relative_to(root)
        top = relative.parts[0] if relative.parts else ""
        folders[:] = [name for name in folders if not is_hidden(name) and (top or name not in _NOT_BUILT)]
        for name in names:
            path = (relative / name).as_posix()
            if not is_hidden(name) and (top in _WHOLE or path in _SINGLE or is_code(path)):
                files[path] = Path(place, name).read_bytes()
    return files


def _problems_of_lock(root: Path, dependencies: Any) -> list[str]:
    """Return the problems of the lock, in which each package has to be that the project needs."""
    needed = [each for each in dependencies if isinstance(each, str)] if isinstance(dependencies, list) else []
    names = {normalized(_name_of(each)) for each in needed} - {DISTRIBUTION}
    try:
        text = (root / LOCK).read_text("utf-8") if (root / LOCK).is_file() else ""
        locked = {name for name, _, _ in locked_requirements(text)}
    except UnicodeDecodeError:
        return [f"{LOCK}: it is not UTF-8."]
    except InvalidInput as error:
        return [error.message]
    return [
        f"{PYPROJECT}: {name!r} of `dependencies` is not in {LOCK}, which pins what is installed. Write it with "
        f"`uv pip compile --generate-hashes {PYPROJECT} -o {LOCK}`."
        for name in sorted(names - locked)
    ]


def _name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]*", requirement.strip())
    return "" if found is None else found[0]


def _require_imports(wheel: ProjectWheel) -> None:
    """Import what the wheel has, and nothing beside it, in a process of its own.

    Raises:
        InvalidInput: A module cannot be imported, or declares what cannot be a tool or an agent.
    """
    with tempfile.TemporaryDirectory() as folder:
        for path, content in wheel.files.items():
            file = Path(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        done = _list_code(Path(folder))
        problem = problem_of_listing(Path(folder), done.returncode, done.stdout, done.stderr)
        if problem is not None:
            raise InvalidInput(problem)


def listing_command(folder: Path) -> Sequence[str]:
    """Return the command that imports the tools and the code of a folder; `problem_of_listing` reads what it prints."""
    return (sys.executable, "-P", "-B", "-m", "nova_workers.sdk.serve", "--list", f"{folder}/")


def problem_of_listing(folder: Path, code: int, stdout: str, stderr: str) -> str | None:
    """Return why a folder's tools and code cannot be used, with the file and its line; None if they can.

    Args:
        folder: What was imported.
        code: The exit code of `listing_command`.
        stdout: What it printed.
        stderr: What it printed there.
    """
    try:
        problem = json.loads(stdout)["problem"]
    except (ValueError, KeyError):
        last = stderr.strip().splitlines()[-1:] or [""]
        problem = f"tools/, code/: the process that imports them ended with code {code}. {last[0]}"
    return None if problem is None else str(problem).replace(f"{folder.resolve()}/", "")


def _list_code(folder: Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 - our program, and the project of the one who builds it
            listing_command(folder),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_IMPORT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise InvalidInput(f"tools/, code/: they were not imported within {_IMPORT_S:g} s.") from error
