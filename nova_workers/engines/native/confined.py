"""Confines a turn's file tools by the SDK's rules for paths, and opens files with our own code (`confined`).

The SDK's `resolve_path` follows every symlink of a path and checks that the result is inside. Its tools then open that
result by name, which is a race: a link may be created in between.
"""

from collections.abc import Sequence
from pathlib import Path

from anthropic.lib.tools.agent_toolset import AgentToolContext, resolve_path

from nova_workers import confined
from nova_workers.confined import PrivateFiles

__all__ = ["Confinement"]


class Confinement(confined.Confinement):
    """The directories of one turn. Its methods block."""

    def __init__(
        self, roots: Sequence[str], *, within: Sequence[str] = (), private: PrivateFiles | None = None
    ) -> None:
        """Confine to `roots`, at least one; relative paths start at the first. See `confined.Confinement`."""
        super().__init__(roots, within=within, private=private)
        workdir, *others = roots
        self._context = AgentToolContext(workdir=workdir, allowed_roots=[Path(other) for other in others])

    def _without_links(self, path: str) -> Path:
        return resolve_path(self._context, path)
