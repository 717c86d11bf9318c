"""Write both halves of the client: ``python deploy/environment/write_client.py``, part of ``make format``.

The async calls come from the template `client.toml` and the API's OpenAPI document, the sync client from the async one.
With ``--check``, which a test calls, nothing is written, and a difference is an error. docs/decisions/0030 says why
they are generated.
"""

import io
import re
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterable
from pathlib import Path

_ENVIRONMENT = Path(__file__).resolve().parent
_ROOT = _ENVIRONMENT.parents[1]
sys.path[:0] = [str(_ROOT), str(_ENVIRONMENT)]

from client_calls import call_sources  # noqa: E402 - a script's own folder is not on the path of a test

_CLIENT = _ROOT / "nova_workers" / "client"
_TEMPLATE = _ENVIRONMENT / "client.toml"

_SYNCED = ("client.py", "transport.py", "resources")
"""What of the async client has a twin below `sync`."""

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

_GENERATED = "# Generated from "
_HEADER = _GENERATED + "{path} by `make format`: change that file instead.\n"
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
    """Write all generated modules below a folder that stands for the client's, formatted."""
    for name, source in call_sources(_TEMPLATE).items():
        path = target / "resources" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_HEADER.format(path=_TEMPLATE.relative_to(_ROOT)) + source, "utf-8")
    _format(target)
    for name in _SYNCED:
        by_hand = {path.relative_to(_CLIENT): path for path in _modules(_CLIENT / name) if not _is_generated(path)}
        written = {path.relative_to(target): path for path in _modules(target / name)}
        for relative, path in {**by_hand, **written}.items():
            twin = target / "sync" / relative
            twin.parent.mkdir(parents=True, exist_ok=True)
            origin = (_CLIENT / relative).relative_to(_ROOT).as_posix()
            source = path.read_text("utf-8").removeprefix(_HEADER.format(path=_TEMPLATE.relative_to(_ROOT)))
            twin.write_text(sync_source(source, origin), "utf-8")
    _format(target / "sync")


def _modules(path: Path) -> Iterable[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.is_file() else []


def _is_generated(path: Path) -> bool:
    with path.open(encoding="utf-8") as file:
        return file.readline().startswith(_GENERATED)


def _format(folder: Path) -> None:
    ruff = (Path(sys.executable).with_name("ruff"), "--config", _ROOT / "pyproject.toml")
    # Ruff takes a module for ours only if its file exists, which at first it does not.
    ours = ("--config", 'lint.isort.known-first-party=["nova_workers"]')
    for step in (("check", "--quiet", "--select", "I,F401,RUF022", "--fix", *ours), ("format", "--quiet")):
        subprocess.run([*ruff, *step, "--no-cache", folder], cwd=_ROOT, check=True)


def _texts(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in _modules(folder) if _is_generated(path)
    }


def main(arguments: list[str]) -> int:
    """Write the modules that changed and delete those without a source; or compare them and print each difference."""
    with tempfile.TemporaryDirectory() as folder:
        _generate(Path(folder))
        wanted, present = _texts(Path(folder)), _texts(_CLIENT)
    changed = sorted(name for name in wanted | present if wanted.get(name) != present.get(name))
    if "--check" in arguments:
        for name in changed:
            print(f"client: {_CLIENT.relative_to(_ROOT) / name} is out of date; run `make format`", file=sys.stderr)
        return 1 if changed else 0
    for name in changed:
        if name in wanted:
            (_CLIENT / name).parent.mkdir(parents=True, exist_ok=True)
            (_CLIENT / name).write_text(wanted[name], "utf-8")
        else:
            (_CLIENT / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
