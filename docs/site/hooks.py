"""What MkDocs adds to the pages of docs/: pages made from code and repository, and the script that draws diagrams.

- `reference/http/`: a page for each group of endpoints, made from the OpenAPI document of the API;
- `reference/statements.md`: each SQL statement of the homes, with its tables and callers;
- `project/`: CONTRIBUTING, CHANGELOG and SECURITY, which other pages link to;
- Mermaid's script, from npm, beside the pages: diagrams need no network when they are read. Without npm the theme loads
  it from a content network.
"""

import functools
import gc
import hashlib
import logging
import posixpath
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))

import http_reference  # noqa: E402 - a module beside this one, which is no package
import statement_reference  # noqa: E402 - likewise

# A build ends before its garbage matters, and to look for it among all pages took a fifth of the CPU.
gc.disable()

_LOG = logging.getLogger("mkdocs.hooks")
_PROJECT = {
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
}
_MERMAID = "11.17.2"
_MERMAID_SHA256 = "581ed7d74bd9048d0e3a91363927d72ef22942d7722546b27f7cc29e35390eb8"
_SCRIPT = "assets/mermaid.min.js"
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    for name, place in _PROJECT.items():
        files.append(File.generated(config, place, content=(ROOT / name).read_text("utf-8")))
    made = http_reference.pages()
    made["reference/statements.md"] = statement_reference.page(statement_reference.statements())
    for place, content in made.items():
        files.append(File.generated(config, place, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links between docs/ and the rest of the repository links of the site; to files that are no pages, text."""
    place = page.file.src_uri
    source = next((name for name, made in _PROJECT.items() if made == place), f"docs/{place}")

    def linked(found: re.Match[str]) -> str:
        text, (target, hash_, anchor) = found[1], found[2].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return found[0]
        there = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if there in _PROJECT:
            there = f"docs/{_PROJECT[there]}"
        if not there.startswith("docs/"):
            return text if text.startswith("`") else f"{text} (`{there}`)"
        if there == f"docs/{place}":
            return f"[{text}](#{anchor})"
        return f"[{text}]({posixpath.relpath(there, posixpath.dirname(f'docs/{place}'))}{hash_}{anchor})"

    return _LINK.sub(linked, markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Load Mermaid where a page has a diagram; the theme then loads none."""
    if 'class="mermaid"' not in output or _mermaid() is None:
        return output
    up = posixpath.relpath(_SCRIPT, page.url or ".")
    return output.replace("</head>", f'<script src="{up}"></script></head>', 1)


def on_post_build(config: MkDocsConfig) -> None:
    """Put Mermaid beside the pages."""
    if (script := _mermaid()) is not None:
        Path(config.site_dir, _SCRIPT).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(script, Path(config.site_dir, _SCRIPT))


@functools.cache
def _mermaid() -> Path | None:
    """Return the script, fetched once; None where npm is not or cannot fetch it."""
    kept = ROOT / ".cache" / "docs" / f"mermaid-{_MERMAID}.min.js"
    npm = shutil.which("npm")
    if not kept.exists() and npm is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            options = ("--silent", "--fetch-retries=1", f"--pack-destination={folder}")
            packed = subprocess.run([npm, "pack", f"mermaid@{_MERMAID}", *options], capture_output=True, check=False)
            if packed.returncode != 0:
                _LOG.info("Mermaid could not be fetched: diagrams will need a network")
                return None
            with tarfile.open(next(Path(folder).glob("*.tgz"))) as tar:
                content: Any = tar.extractfile("package/dist/mermaid.min.js")
                script = content.read()
        if (digest := hashlib.sha256(script).hexdigest()) != _MERMAID_SHA256:
            raise ValueError(f"mermaid {_MERMAID} has the SHA-256 {digest}, not {_MERMAID_SHA256}")
        kept.write_bytes(script)
    return kept if kept.exists() else None
