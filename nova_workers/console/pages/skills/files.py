"""Files of skills: uploads of a browser, and what a page shows of them."""

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.datastructures import UploadFile
from starlette.requests import Request

from nova_workers.contracts.skills import MAX_SKILL_BYTES, SKILL_MD, SkillFileContent, SkillFilePut

_FRONT = re.compile(r"\A---[ \t]*\n(?P<front>.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"""^name:[ \t]*["']?(?P<name>[^"'\n#]*?)["']?[ \t]*$""", re.MULTILINE)
_SHOWN_CHARS = 200_000
_MAX_UPLOADS = 500
"""Some of a folder are hidden, and passed over."""


@dataclass(frozen=True, slots=True)
class Upload:
    """What a form's file fields have.

    Attributes:
        files: With paths relative to the skill's directory.
        skill_md: The text of an uploaded SKILL.md.
        is_folder: Whether a whole folder was uploaded, which replaces all files.
    """

    files: tuple[SkillFilePut, ...] = ()
    skill_md: str | None = None
    is_folder: bool = False
    problem: str | None = None


async def read_uploads(request: Request) -> Upload:
    """Return the files of the fields ``folder`` and ``files``, without hidden ones, as `nova skills add` does."""
    async with request.form(max_files=_MAX_UPLOADS) as sent:
        folder = [part for part in sent.getlist("folder") if isinstance(part, UploadFile) and part.filename]
        single = [part for part in sent.getlist("files") if isinstance(part, UploadFile) and part.filename]
        if sum(part.size or 0 for part in (*folder, *single)) > 2 * MAX_SKILL_BYTES:
            most = f"{MAX_SKILL_BYTES // 1_048_576} MiB"
            return Upload(problem=f"The files are larger than a skill may be, which is {most} together.")
        # A folder's files are named with the folder itself.
        found = {(part.filename or "").partition("/")[2]: await part.read() for part in folder}
        found |= {(part.filename or "").rpartition("/")[2]: await part.read() for part in single}
    visible = {path: content for path, content in found.items() if path and not _is_hidden(path)}
    text = visible.pop(SKILL_MD, None)
    files = tuple(
        SkillFilePut(path=path, content_base64=base64.b64encode(content).decode(), executable=content.startswith(b"#!"))
        for path, content in sorted(visible.items())
    )
    try:
        return Upload(files, None if text is None else text.decode().replace("\r\n", "\n"), bool(folder))
    except UnicodeDecodeError:
        return Upload(problem=f"{SKILL_MD} is no text in UTF-8.")


def merged(kept: Iterable[SkillFilePut], added: Iterable[SkillFilePut]) -> list[SkillFilePut]:
    """Return files by path; an added one takes the place of a kept one."""
    return list({file.path: file for file in (*kept, *added)}.values())


def name_in(skill_md: str) -> str | None:
    """Return the name that the front matter of a SKILL.md gives."""
    front = _FRONT.match(skill_md)
    name = _NAME.search(front["front"]) if front else None
    return name["name"].strip() or None if name else None


def text_below_front(skill_md: str) -> str:
    """Return a SKILL.md without its front matter."""
    return _FRONT.sub("", skill_md, count=1)


def content_of(file: SkillFileContent) -> bytes:
    """Return a file's bytes."""
    try:
        return base64.b64decode(file.content_base64)
    except binascii.Error:
        return b""


def shown_text(content: bytes) -> str | None:
    """Return a file as text to show; None if it is none, or too long."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return text if len(text) <= _SHOWN_CHARS and "\x00" not in text else None


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))
