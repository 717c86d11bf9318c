"""Glob and Grep, as a program of its own: ``python -I -S search_child.py``, a JSON object in, text out.

A search runs apart because neither can be bounded inside a worker: Python's ``re`` holds the interpreter's lock for as
long as a bad pattern likes (every other turn of the process would stand still), and a walk through a large tree cannot
be cut short in a thread. A program can be ended. It imports only the standard library, so that it starts in 20 ms.

Exit code 0: what was found. 2: what is wrong with the request.
"""

import json
import os
import re
import resource
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

MAX_MEMORY_BYTES = 1 << 30
MAX_ENTRIES = 50_000
MAX_RESULTS = 200
MAX_OUTPUT_CHARS = 100_000
MAX_LINE_BYTES = 2_000
MAX_FILE_BYTES = 20_000_000
SKIPPED = frozenset({".git", "node_modules"})
_REFUSED = 2


def glob(root: Path, pattern: str) -> Iterator[str]:
    """Yield the files under `root` that match, newest first. Nothing outside `root` is told of."""
    if PurePosixPath(pattern).is_absolute() or ".." in PurePosixPath(pattern).parts:
        raise ValueError("the pattern must be relative, without '..'; give the directory as path")
    found: list[tuple[float, str]] = []
    # A pattern without ** follows links to directories, so each match is resolved before it counts.
    for match in islice(root.glob(pattern), MAX_ENTRIES):
        try:
            if match.resolve(strict=True).is_relative_to(root) and not match.is_dir():
                found.append((match.stat().st_mtime, str(match)))
        except (OSError, RuntimeError):
            continue
    found.sort(reverse=True)
    yield from (path for _, path in found[:MAX_RESULTS])
    if len(found) > MAX_RESULTS:
        yield f"[{len(found) - MAX_RESULTS} more files match; narrow the pattern]"


def grep(root: Path, pattern: str) -> Iterator[str]:
    """Yield ``path:line number:line`` for each line under `root` in which the expression is found."""
    expression = re.compile(pattern)
    for path in _files(root):
        try:
            with path.open("rb") as file:
                if b"\x00" in file.read(512):
                    continue
                file.seek(0)
                for number, raw in enumerate(file, 1):
                    if len(raw) > MAX_LINE_BYTES:
                        continue
                    line = raw.decode(errors="replace").rstrip("\r\n")
                    if expression.search(line):
                        yield f"{path}:{number}:{line}"
        except OSError:
            continue


def _files(root: Path) -> Iterator[Path]:
    """Yield regular files in a stable order; no link is followed."""
    if root.is_file():
        yield root
        return
    seen = 0
    for directory, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name not in SKIPPED)
        for name in sorted(files):
            path = Path(directory, name)
            seen += 1
            if seen > MAX_ENTRIES:
                return
            if not path.is_symlink() and path.is_file() and path.stat().st_size <= MAX_FILE_BYTES:
                yield path


def _answer(request: dict[str, Any]) -> str:
    search = {"Glob": glob, "Grep": grep}[request["tool"]]
    lines: list[str] = []
    room = MAX_OUTPUT_CHARS
    for line in search(Path(request["root"]), request["pattern"]):
        room -= len(line) + 1
        if room < 0:
            lines.append("[there is more; narrow the search]")
            break
        lines.append(line)
    return "\n".join(lines) or "no matches"


def main() -> int:
    """Answer the request on standard input."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    try:
        answer, code = _answer(json.load(sys.stdin.buffer)), 0
    except (re.error, ValueError, NotImplementedError, RecursionError, OverflowError, MemoryError, OSError) as error:
        answer, code = str(error) or type(error).__name__, _REFUSED
    sys.stdout.buffer.write(answer.encode(errors="replace"))
    return code


if __name__ == "__main__":
    sys.exit(main())
