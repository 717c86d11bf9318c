"""The static files: their addresses contain a digest of all of them, so that browsers may keep them for ever."""

from hashlib import sha256
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

_FOLDER = Path(__file__).parent / "static"
_CORE: Final = ("tokens", "base", "layout", "parts", "forms", "text")
"""The style sheets of every page, in their order, served as one: each answer has 700 bytes of headers."""
_FOREVER = "public, max-age=31536000, immutable"


class Assets:
    """The folder of static files, and the addresses of its files.

    The digest is a part of the path and not of a query, so that modules that import each other by relative paths are
    all of one version.
    """

    def __init__(self) -> None:
        digest = sha256()
        for path in sorted(_FOLDER.rglob("*")):
            if path.is_file():
                digest.update(path.name.encode() + b"\0" + path.read_bytes())
        self.prefix = f"/static/{digest.hexdigest()[:12]}"
        self._core = b"".join((_FOLDER / "css" / f"{name}.css").read_bytes() for name in _CORE)

    def url(self, name: str) -> str:
        """Return the address of a file, such as ``css/base.css``."""
        return f"{self.prefix}/{name}"

    def app(self) -> Router:
        """Return the application that serves them, to be mounted at `prefix`."""
        return Router([Route("/css/core.css", self._serve_core), Mount("/", _Cached(directory=_FOLDER))])

    async def _serve_core(self, _: Request) -> Response:
        return Response(self._core, media_type="text/css", headers={"cache-control": _FOREVER})


class _Cached(StaticFiles):
    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["cache-control"] = _FOREVER
        return response
