"""Which code of users is installed, and its tools, agents, effects and evaluators: read in a process, kept by version.

Nothing of users is imported here. What a process lists is kept below NOVA_HOME under a digest of the source's files, so
that a later start does not ask it again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Final

import structlog
from pydantic import ValidationError

from nova_workers.base.config import Settings
from nova_workers.base.config.sections import ToolProject
from nova_workers.base.entry_points import entry_points_of
from nova_workers.base.errors import ConfigurationError, InvalidInput
from nova_workers.base.project_files import digest_of_code, is_code, is_hidden
from nova_workers.base.project_folders import unpack_project
from nova_workers.base.release import release
from nova_workers.base.user_code import serving_command
from nova_workers.contracts.tool_programs import ToolSource
from nova_workers.contracts.user_tools import ToolListing

_log = structlog.get_logger(__name__)

_GROUPS: Final = ("nova_workers.tools", "nova_workers.agents")
_EFFECTS: Final = "nova_workers.effects"
_MODULE_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_EACH_TENANT: Final = "*"
_FORM: Final = "tools, agents, effects and evaluators"
"""What is kept. A listing of another form is not read."""
_IMPORT_TIMEOUT_S: Final = 60.0
_START_S: Final = 20.0
"""The time of Python to start and to print, beside that for imports."""
_KEPT_VARIABLES: Final = ("PATH", "HOME", "LANG", "TMPDIR")


@dataclass(frozen=True, slots=True)
class InstalledSource:
    """Code of users that is installed here.

    Attributes:
        source: Where it is.
        digest: Of its files; None if they may change without notice.
        release: The version that its author gave it; empty without one.
        problem: Why it cannot be used.
    """

    source: ToolSource
    digest: str | None
    release: str = ""
    problem: str | None = None


def installed_sources(settings: Settings) -> Iterator[InstalledSource]:
    """Yield all sources. Blocks: unpacks wheels that are not unpacked yet, with their packages."""
    root = settings.tools.project_root or settings.home / "projects"
    for project in settings.tools.projects:
        yield _project(project, root)
    found = {(entry.name, entry.module): entry for group in _GROUPS for entry in entry_points_of(group)}
    for _, entry in sorted(found.items()):
        if not _MODULE_NAME.fullmatch(entry.name):
            _log.warning("tools_not_installed", name=entry.name, cause="its name has other characters than a-z 0-9 _ -")
            continue
        version = "" if entry.dist is None else entry.dist.version
        yield InstalledSource(ToolSource(entry.name, entry.module), _version_of(entry), version)


def effect_module(name: str) -> InstalledSource:
    """Return the installed module of effects that has a name.

    Raises:
        ConfigurationError: None has it, or several have; the message names the packages.
    """
    entries = entry_points_of(_EFFECTS)
    found = {entry.module: entry for entry in entries if entry.name == name}
    if not found:
        known = ", ".join(sorted({entry.name for entry in entries})) or "none"
        raise ConfigurationError(
            f"No package names {name!r} in the entry-point group {_EFFECTS!r}; there are: {known}. Install the package "
            "beside each worker, or take the effect out of NOVA_EFFECTS__PACKAGES."
        )
    if len(found) > 1:
        packages = " and ".join(sorted(f"{entry.value!r} of {_package(entry)}" for entry in found.values()))
        raise ConfigurationError(
            f"{packages} have the same name {name!r} in the entry-point group {_EFFECTS!r}. Uninstall one."
        )
    (entry,) = found.values()
    version = "" if entry.dist is None else entry.dist.version
    return InstalledSource(ToolSource(name, entry.module, is_shared=True), _version_of(entry), version)


def _package(entry: EntryPoint) -> str:
    return "a package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def _project(project: ToolProject, root: Path) -> InstalledSource:
    name, folder, problem = f"project:{project.name}", project.folder, None
    if project.wheel is not None:
        try:
            folder = unpack_project(project.wheel, root)
        except (InvalidInput, ConfigurationError) as error:
            problem = error.message
    target = f"{str(folder or project.wheel).rstrip('/')}/"
    source = ToolSource(name, target, None if project.tenant == _EACH_TENANT else project.tenant)
    if problem is not None:
        return InstalledSource(source, None, problem=problem)
    return InstalledSource(source, _digest_of(Path(target)), _release_of(Path(target)))


def _release_of(folder: Path) -> str:
    try:
        document = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return ""
    return str(document.get("project", {}).get("version", ""))


def read_listing(source: ToolSource, version: str | None, cache: Path) -> ToolListing:
    """Return the tools of a source. Blocks: for the import of its modules, or for one file where they are known.

    Args:
        source: Where they come from.
        version: Of its files; None is not kept.
        cache: The directory of what is kept.
    """
    key = None if version is None else hashlib.sha256(f"{source.target}\n{version}\n{_runtime()}".encode()).hexdigest()
    file = None if key is None else cache / f"{key}.json"
    if file is not None and (known := _kept(file)) is not None:
        return known
    listing = _ask(source)
    if file is not None and listing.problem is None:
        _keep(file, listing)
    return listing


def _runtime() -> str:
    return f"{_FORM} {release()} {sys.version}"


def _ask(source: ToolSource) -> ToolListing:
    command = serving_command("--list", "--import-timeout", f"{_IMPORT_TIMEOUT_S:g}", source.target)
    environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    try:
        done = subprocess.run(  # noqa: S603 - our program, and a source that the operator named
            command,
            env=environment,
            cwd=source.folder or "/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_IMPORT_TIMEOUT_S + _START_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ToolListing(
            problem=f"{source.target}: its tools were not listed within {_IMPORT_TIMEOUT_S + _START_S:g} s."
        )
    except OSError as error:
        return ToolListing(problem=f"{source.target}: {(error.strerror or str(error)).lower()}.")
    try:
        return ToolListing.model_validate_json(done.stdout)
    except ValidationError:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or [""]
        return ToolListing(
            problem=f"{source.target}: its process ended with code {done.returncode} before it listed tools. {last[0]}"
        )


def _kept(file: Path) -> ToolListing | None:
    try:
        return ToolListing.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None


def _keep(file: Path, listing: ToolListing) -> None:
    partial = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial.write_text(listing.model_dump_json(), encoding="utf-8")
        partial.replace(file)
    except OSError as error:
        # The next start asks again.
        _log.info("tools_not_kept", path=str(file), cause=error.strerror)


def _digest_of(folder: Path) -> str:
    """Return a digest of all modules in a directory, and of its lock."""
    modules: dict[str, bytes] = {}
    for place, folders, names in os.walk(folder):
        # Such as .venv, which has thousands of modules.
        folders[:] = [name for name in folders if not is_hidden(name)]
        for name in names:
            path = Path(place, name)
            if is_code(relative := path.relative_to(folder).as_posix()):
                try:
                    modules[relative] = path.read_bytes()
                except OSError as error:
                    modules[relative] = str(error.strerror).encode()
    return digest_of_code(modules)


def _version_of(entry: EntryPoint) -> str | None:
    package = entry.dist
    if package is None:
        return None
    direct = json.loads(package.read_text("direct_url.json") or "{}")
    is_editable = bool(direct.get("dir_info", {}).get("editable"))
    record = f"{package.name} {package.version} {package.read_text('RECORD') or ''}"
    return None if is_editable else hashlib.sha256(record.encode()).hexdigest()
