"""The form of a skill: reads a SKILL.md and checks the files beside it. Pure."""

import binascii
import re
from base64 import b64decode
from collections.abc import Iterable
from importlib import import_module

from pydantic import ValidationError

from nova_workers.base.errors import InvalidInput
from nova_workers.base.validation import place_of, problem_of
from nova_workers.contracts.content import storable, storable_json
from nova_workers.contracts.skills import (
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_SKILL_BYTES,
    MAX_SKILL_MD_CHARS,
    SKILL_MD,
    SkillFile,
    SkillFilePut,
    SkillFront,
)

_PLAIN_YAML = "nova_workers.domain.skills.rules.plain_yaml"
"""Imported with the first front matter, since it brings the library for YAML: 1 MB of an idle API."""
_FRONT = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_MAX_FRONT_CHARS = 8_000
_MAX_PATH_CHARS = 200
_MAX_PATH_PARTS = 10
_MAX_NAME_BYTES = 255
"""The limit of common file systems."""
_KNOWN = "name, description, license, compatibility, metadata, allowed-tools"


def parse_skill_md(text: str, *, field: str = "skill_md") -> tuple[SkillFront, str]:
    """Return the front matter of a SKILL.md, and the instructions after it.

    Args:
        text: The whole file.
        field: What errors name.

    Raises:
        InvalidInput: It has no front matter, the front matter is no YAML or has the wrong fields, there are no
            instructions, or it is too long.
    """
    if len(text) > MAX_SKILL_MD_CHARS:
        raise InvalidInput(
            f"{field}: {SKILL_MD} has at most {MAX_SKILL_MD_CHARS} characters, this one {len(text)}. "
            "Move what is not always needed into files beside it.",
            field=field,
        )
    if storable(text) != text:
        raise InvalidInput(f"{field}: it holds a character that cannot be stored; remove it.", field=field)
    found = _FRONT.match(text)
    if found is None:
        raise InvalidInput(
            f"{field}: {SKILL_MD} begins with front matter: a line of three dashes, name and description in YAML, "
            f"another line of three dashes. This one begins with {text[:40]!r}.",
            field=field,
        )
    front = _front(found[1], field)
    body = text[found.end() :].strip()
    if not body:
        raise InvalidInput(f"{field}: there are no instructions after the front matter.", field=field)
    return front, body


def check_path(path: str, *, field: str) -> None:
    """Check the path of a file beside a SKILL.md.

    Raises:
        InvalidInput: It is not a plain relative path inside the skill's directory.
    """
    parts = path.split("/")
    if not path or len(path) > _MAX_PATH_CHARS or len(parts) > _MAX_PATH_PARTS:
        raise InvalidInput(
            f"{field}: a path has 1 to {_MAX_PATH_CHARS} characters and at most {_MAX_PATH_PARTS} parts; "
            f"got {path[:80]!r}.",
            field=field,
        )
    for part in parts:
        # Hidden names too: some have a meaning for programs in the directory, such as `.claude` and `.git`.
        if not _is_plain(part):
            raise InvalidInput(
                f"{field}: {path!r} is not a path inside the skill. Use names separated by slashes, such as "
                "'scripts/run.py': relative, without '..', hidden names, backslashes, colons and control characters.",
                field=field,
            )
    if path.casefold() == SKILL_MD.casefold():
        raise InvalidInput(f"{field}: {SKILL_MD} itself is not one of the files.", field=field)


def _is_plain(part: str) -> bool:
    return (
        part.isprintable()
        and 0 < len(part.encode("utf-8")) <= _MAX_NAME_BYTES
        and not part.startswith(".")
        and part[-1] not in " ."
        and not set(part) & {"\\", ":"}
    )


def check_files(files: Iterable[SkillFile]) -> tuple[SkillFile, ...]:
    """Check the files beside a SKILL.md, and return them by path.

    Raises:
        InvalidInput: Too many, too large, a path that leads outside, or two paths that conflict on a disk.
    """
    checked = tuple(files)
    if len(checked) > MAX_FILES:
        raise InvalidInput(f"files: a skill has at most {MAX_FILES} files, this one {len(checked)}.", field="files")
    taken: dict[str, str] = {}
    for at, file in enumerate(checked):
        check_path(file.path, field=f"files.{at}.path")
        if len(file.content) > MAX_FILE_BYTES:
            raise InvalidInput(
                f"files.{at}: {file.path!r} has {len(file.content)} bytes, at most {MAX_FILE_BYTES} are allowed.",
                field=f"files.{at}",
            )
        _take(taken, file.path, at)
    total = sum(len(file.content) for file in checked)
    if total > MAX_SKILL_BYTES:
        raise InvalidInput(
            f"files: together they have {total} bytes, at most {MAX_SKILL_BYTES} are allowed.", field="files"
        )
    return tuple(sorted(checked, key=lambda file: file.path))


def decode_files(files: Iterable[SkillFilePut]) -> tuple[SkillFile, ...]:
    """Return the files of a request, checked.

    Raises:
        InvalidInput: As `check_files`, or a content is not base64.
    """

    def decode(at: int, file: SkillFilePut) -> SkillFile:
        try:
            return SkillFile(file.path, b64decode(file.content_base64, validate=True), file.executable)
        except (binascii.Error, ValueError) as error:
            field = f"files.{at}.content_base64"
            raise InvalidInput(f"{field}: it is not base64 ({error}).", field=field) from error

    return check_files(decode(at, file) for at, file in enumerate(files))


def _take(taken: dict[str, str], path: str, at: int) -> None:
    """Record a file and its directories, by names as a case-insensitive disk compares them.

    Raises:
        InvalidInput: A name is used twice.
    """
    parts = path.split("/")
    for length in range(1, len(parts) + 1):
        name = "/".join(parts[:length])
        thing = f"file {name!r}" if length == len(parts) else f"directory {name!r}"
        before = taken.setdefault(name.casefold(), thing)
        if before != thing or (length == len(parts) and taken.get(f"{name.casefold()}/") is not None):
            raise InvalidInput(
                f"files.{at}.path: {path!r} and the {before} cannot be in one directory.", field=f"files.{at}.path"
            )
    # A file occurs once; a directory once per file in it.
    taken[f"{path.casefold()}/"] = path


def _front(text: str, field: str) -> SkillFront:
    if len(text) > _MAX_FRONT_CHARS:
        raise InvalidInput(
            f"{field}: the front matter has at most {_MAX_FRONT_CHARS} characters, this one {len(text)}.", field=field
        )
    try:
        value: object = import_module(_PLAIN_YAML).load_plain(text)
    except ValueError as error:
        raise InvalidInput(f"{field}: the front matter is not plain YAML: {error}.", field=field) from error
    if not isinstance(value, dict):
        raise InvalidInput(f"{field}: the front matter is not a mapping of names to values.", field=field)
    if storable_json(value) != value:
        raise InvalidInput(f"{field}: the front matter holds a character that cannot be stored.", field=field)
    tools = value.get("allowed-tools")
    if isinstance(tools, str):
        # The format requires one line.
        value["allowed-tools"] = tools.replace(",", " ").split()
    try:
        return SkillFront.model_validate(value, by_name=False, by_alias=True)
    except ValidationError as error:
        raise _explain(error, field) from error


def _explain(error: ValidationError, field: str) -> InvalidInput:
    first = error.errors(include_url=False, include_context=False)[0]
    name = place_of(first)
    if first["type"] == "extra_forbidden":
        words = f"{name!r} is not a field of the front matter ({_KNOWN}); put what is yours under metadata"
    elif first["type"] == "missing":
        words = f"the front matter has no {name!r}"
    else:
        words = f"{name}: {problem_of(first)}; got {str(first['input'])[:80]!r}"
    return InvalidInput(f"{field}: {words}.", field=f"{field}.{name}")
