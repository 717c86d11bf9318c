"""Glob and Grep as a separate program: ``python -I -S search_child.py REQUEST``.

A search cannot be limited inside a worker: with a bad pattern, Python's ``re`` holds the interpreter's lock and stops
every other turn of the process, and a walk through a large tree cannot be interrupted in a thread. A process can be
killed. The program imports only the standard library, so that it starts in 20 ms.

The place to search is passed as an open directory or file, so it cannot be replaced. Each directory is opened relative
to its parent, and no link is followed.

Exit code 0: stdout has the matches. 2: it says what is wrong with the request.
"""

import codecs
import json
import os
import re
import resource
import stat
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, BinaryIO

MAX_MEMORY_BYTES = 1 << 30
MAX_ENTRIES = 50_000
MAX_RESULTS = 200
MAX_OUTPUT_CHARS = 100_000
MAX_LINE_BYTES = 2_000
MAX_FILE_BYTES = 20_000_000
SKIPPED = frozenset({".git", "node_modules"})
_REFUSED = 2
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Entry = tuple[str, str, int]
"""Path from the place, name, and descriptor of its directory."""


Private = Sequence[str]
"""NOVA_HOME, and the folder in it that is not private; empty for none."""


def glob(place: int, shown: str, pattern: str, private: Private = ()) -> Iterator[str]:
    """Yield the matching files, newest first."""
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise ValueError("the pattern must be relative, without '..'; give the directory as path")
    patterns = [part for part in pattern.split("/") if part not in ("", ".")]
    found: list[tuple[float, str]] = []
    for path, name, directory in _entries(place, shown, private):
        if _fits(path.split("/"), patterns):
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                found.append((status.st_mtime, path))
    found.sort(key=lambda item: (-item[0], item[1]))
    yield from (f"{shown}/{path}" for _, path in found[:MAX_RESULTS])
    if len(found) > MAX_RESULTS:
        yield f"[{len(found) - MAX_RESULTS} more files match; narrow the pattern]"


def grep(place: int, shown: str, pattern: str, private: Private = ()) -> Iterator[str]:
    """Yield ``path:line number:line`` for each line that matches the expression."""
    expression = re.compile(pattern)
    if stat.S_ISREG(os.fstat(place).st_mode):
        yield from _matches(place, shown, expression)
        return
    for path, name, directory in _entries(place, shown, private):
        try:
            file = os.open(name, _OPEN, dir_fd=directory)
        except OSError:
            continue
        yield from _matches(file, f"{shown}/{path}", expression)


def _matches(descriptor: int, shown: str, expression: re.Pattern[str]) -> Iterator[str]:
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_BYTES:
            return
        for number, line in enumerate(_text_lines(file), 1):
            if len(line) <= MAX_LINE_BYTES and expression.search(line):
                yield f"{shown}:{number}:{line}"


def _text_lines(file: BinaryIO) -> Iterator[str]:
    """Yield the lines of a text, without their ends; none of a binary file. For encodings, see `texts`."""
    head = file.read(512)
    file.seek(0)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and not head.startswith(codecs.BOM_UTF32_LE):
        yield from (line.rstrip("\r\n") for line in file.read().decode("utf-16", errors="replace").split("\n"))
    elif b"\x00" not in head:
        if head.startswith(codecs.BOM_UTF8):
            file.seek(len(codecs.BOM_UTF8))
        yield from (_decoded(raw).rstrip("\r\n") for raw in file)


def _decoded(raw: bytes) -> str:
    if len(raw) > MAX_LINE_BYTES:
        # Too long to be searched.
        return raw.decode("latin-1")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("cp1252", errors="replace")


def _entries(place: int, shown: str, private: Private) -> Iterator[Entry]:
    seen = 0
    for top, names, files, directory in os.fwalk(".", dir_fd=place, follow_symlinks=False):
        path = os.path.normpath(os.path.join(shown, top))
        names[:] = sorted(name for name in names if name not in SKIPPED and _may_enter(f"{path}/{name}", private))
        if _is_private(path, private):
            continue
        for name in sorted(files):
            seen += 1
            if seen > MAX_ENTRIES:
                return
            yield os.path.join(top, name)[2:], name, directory


def _is_private(path: str, private: Private) -> bool:
    if path.startswith("//"):
        path = path[1:]
    if _is_below(path, "/proc"):
        return True
    return bool(private) and _is_below(path, private[0]) and not _is_below(path, private[1])


def _may_enter(path: str, private: Private) -> bool:
    """Return whether a directory is public, or contains the public folder."""
    return not _is_private(path, private) or (bool(private) and _is_below(private[1], path.replace("//", "/")))


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip('/')}/")


def _fits(names: Sequence[str], patterns: Sequence[str]) -> bool:
    """Return whether a path matches a pattern, in which ``**`` is any number of directories."""
    if not patterns:
        return not names
    if patterns[0] == "**":
        return any(_fits(names[at:], patterns[1:]) for at in range(len(names) + 1))
    return bool(names) and fnmatchcase(names[0], patterns[0]) and _fits(names[1:], patterns[1:])


def _answer(request: dict[str, Any]) -> str:
    search = {"Glob": glob, "Grep": grep}[request["tool"]]
    lines: list[str] = []
    room = MAX_OUTPUT_CHARS
    for line in search(request["place"], request["shown"], request["pattern"], request["private"]):
        room -= len(line) + 1
        if room < 0:
            lines.append("[there is more; narrow the search]")
            break
        lines.append(line)
    return "\n".join(lines) or "no matches"


def main() -> int:
    """Answer the request."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    try:
        answer, code = _answer(json.loads(sys.argv[1])), 0
    except (re.error, ValueError, RecursionError, OverflowError, MemoryError, OSError) as error:
        answer, code = str(error) or type(error).__name__, _REFUSED
    sys.stdout.buffer.write(answer.encode(errors="replace"))
    return code


if __name__ == "__main__":
    sys.exit(main())
