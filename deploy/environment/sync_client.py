"""Write the sync client from the async one: ``python deploy/environment/sync_client.py``, part of ``make format``.

With ``--check``, part of ``make check``, nothing is written, and a difference is an error. docs/decisions/0030 says why
the sync client is generated.
"""

import io
import re
import subprocess
import sys
import tempfile
import tokenize
from pathlib import Path

__all__ = ["main", "sync_source"]

_ROOT = Path(__file__).resolve().parents[2]
_CLIENT = _ROOT / "nova_workers" / "client"
_SYNC = _CLIENT / "sync"

_GENERATED = ("client.py", "transport.py", "resources")
_BY_HAND = frozenset({"__init__.py", "connection.py", "paging.py"})
"""Modules of the sync client that are not generated."""

_SYNC_NAMES = {
    "AbstractAsyncContextManager": "AbstractContextManager",
    "AsyncGenerator": "Generator",
    "AsyncIterable": "Iterable",
    "NovaClient": "SyncNovaClient",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aclose": "close",
    "aclosing": "closing",
    "aread": "read",
    "asynccontextmanager": "contextmanager",
}
_MODULES = {"client", "connection", "paging", "resources", "transport"}
"""What has a twin below `nova_workers.client.sync`; the other modules serve both clients."""

_HEADER = "# Generated from {path} by `make format`: change that file instead.\n"
_WORD = re.compile(r"\w+")


def sync_source(source: str, path: str) -> str:
    """Return the sync twin of an async module, not yet formatted."""
    lines = source.splitlines(keepends=True)
    names = ("",) * 4
    # From the last token to the first, so that the places of those before it stay right.
    edits: list[tuple[tokenize.TokenInfo, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            edits.append((token, _sync_name(token.string, names)))
        elif token.type == tokenize.STRING and (token.string.startswith('"""') or token.string[1:-1] in _SYNC_NAMES):
            edits.append((token, _sync_text(token.string)))
        names = (*names[1:], token.string)
    for token, new in reversed(edits):
        if new != token.string:
            _replace(lines, token, new)
    return _HEADER.format(path=path) + "".join(lines)


def _sync_name(name: str, before: tuple[str, ...]) -> str:
    if name in ("async", "await"):
        return ""
    if name in _MODULES and before == ("nova_workers", ".", "client", "."):
        return f"sync.{name}"
    return _SYNC_NAMES.get(name, name)


def _sync_text(text: str) -> str:
    text = re.sub(r"\basync (?=with|for)|\bawait (?=\w+\.)", "", text)
    return _WORD.sub(lambda word: _SYNC_NAMES.get(word[0], word[0]), text)


def _replace(lines: list[str], token: tokenize.TokenInfo, new: str) -> None:
    (first, begin), (last, end) = token.start, token.end
    after = lines[last - 1][end:]
    # With `async` and `await` goes the blank after it.
    after = after if new else after.lstrip(" ")
    lines[first - 1 : last] = [lines[first - 1][:begin] + new + after, *[""] * (last - first)]


def _generate(target: Path) -> None:
    """Write all generated modules below a folder, formatted."""
    for path in sorted(path for name in _GENERATED for path in (_CLIENT / name, *(_CLIENT / name).rglob("*.py"))):
        if path.is_file():
            twin = target / path.relative_to(_CLIENT)
            twin.parent.mkdir(parents=True, exist_ok=True)
            twin.write_text(sync_source(path.read_text("utf-8"), path.relative_to(_ROOT).as_posix()), "utf-8")
    ruff = (Path(sys.executable).with_name("ruff"), "--config", _ROOT / "pyproject.toml")
    # Ruff takes a module for ours only if its file exists, which at first it does not.
    ours = ("--config", 'lint.isort.known-first-party=["nova_workers"]')
    for step in (("check", "--quiet", "--select", "I", "--fix", *ours), ("format", "--quiet")):
        subprocess.run([*ruff, *step, "--no-cache", target], cwd=_ROOT, check=True)


def _texts(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text("utf-8")
        for path in folder.rglob("*.py")
        if path.parent != folder or path.name not in _BY_HAND
    }


def main() -> int:
    """Write the modules that changed and delete those without a source; or compare them and print each difference."""
    with tempfile.TemporaryDirectory() as folder:
        _generate(Path(folder))
        wanted, present = _texts(Path(folder)), _texts(_SYNC)
    changed = sorted(name for name in wanted | present if wanted.get(name) != present.get(name))
    if "--check" in sys.argv[1:]:
        for name in changed:
            print(f"sync client: {_SYNC.relative_to(_ROOT) / name} is out of date; run `make format`", file=sys.stderr)
        return 1 if changed else 0
    for name in changed:
        if name in wanted:
            (_SYNC / name).parent.mkdir(parents=True, exist_ok=True)
            (_SYNC / name).write_text(wanted[name], "utf-8")
        else:
            (_SYNC / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
