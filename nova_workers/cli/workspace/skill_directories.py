"""Skills as directories on this machine's disk: reading and writing."""

import os
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from pathlib import Path

from nova_workers.base.errors import Conflict, InvalidInput
from nova_workers.contracts.skills import (
    MAX_FILE_BYTES,
    MAX_FILES,
    SKILL_MD,
    SkillDetail,
    SkillFile,
    SkillFileContent,
    SkillFilePut,
    SkillPut,
)
from nova_workers.domain.skills.rules.format import check_files, parse_skill_md

_PASSED_OVER = frozenset({"__pycache__", "node_modules"})


def read_skill(directory: Path) -> tuple[str, SkillPut, tuple[str, ...]]:
    """Read a skill's directory.

    Hidden files and files that programs generate are skipped.

    Returns:
        Its name, the skill, and the paths that were skipped.

    Raises:
        InvalidInput: It is not a skill's directory, or contains a symbolic link; the message names the file.
    """
    root = directory.resolve()
    try:
        skill_md = (root / SKILL_MD).read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{str(root / SKILL_MD)!r} cannot be read: {error}") from error
    front, _ = parse_skill_md(skill_md, field=SKILL_MD)
    if front.name != root.name:
        raise InvalidInput(
            f"{SKILL_MD} calls the skill {front.name!r}, but its directory is called {root.name!r}; rename one."
        )
    passed_over: list[str] = []
    try:
        files = check_files(_files(root, root, passed_over))
    except OSError as error:
        raise InvalidInput(f"{str(root)!r} cannot be read: {error}") from error
    puts = [
        SkillFilePut(path=file.path, content_base64=b64encode(file.content).decode("ascii"), executable=file.executable)
        for file in files
    ]
    return root.name, SkillPut(skill_md=skill_md, files=puts), tuple(passed_over)


def write_skill(directory: Path, skill: SkillDetail, files: Iterable[SkillFileContent]) -> Path:
    """Write a skill as a directory of its name inside `directory`; returns where.

    Raises:
        Conflict: The path exists already.
        InvalidInput: The server named a path that leads outside, or a file cannot be written.
    """
    target = directory / skill.name
    checked = check_files(SkillFile(file.path, b64decode(file.content_base64), file.executable) for file in files)
    try:
        target.mkdir(parents=True)
        (target / SKILL_MD).write_text(skill.skill_md, encoding="utf-8", newline="")
        for file in checked:
            path = target / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.content)
            if file.executable:
                path.chmod(path.stat().st_mode | 0o111)
    except FileExistsError as error:
        raise Conflict(f"{str(target)!r} is there already; move it away first.") from error
    except OSError as error:
        raise InvalidInput(f"{str(target)!r} cannot be written: {error}") from error
    return target


def _files(root: Path, directory: Path, passed_over: list[str]) -> Iterator[SkillFile]:
    found = 0
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        path = Path(entry.path)
        name = path.relative_to(root).as_posix()
        if entry.name.startswith(".") or entry.name in _PASSED_OVER:
            passed_over.append(name)
        elif entry.is_symlink():
            raise InvalidInput(f"{name!r} is a symbolic link; a skill holds plain files only.")
        elif entry.is_dir():
            yield from _files(root, path, passed_over)
        elif name != SKILL_MD:
            found += 1
            if found > MAX_FILES or not entry.is_file() or entry.stat().st_size > MAX_FILE_BYTES:
                raise InvalidInput(
                    f"{name!r} cannot be part of a skill: it has at most {MAX_FILES} plain files of at most "
                    f"{MAX_FILE_BYTES} bytes each."
                )
            yield SkillFile(name, path.read_bytes(), bool(entry.stat().st_mode & 0o100))
