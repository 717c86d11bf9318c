"""``/docs``: the interactive reference. It loads everything from this server, and its policy allows nothing else."""

import asyncio
from typing import Final

import orjson
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import HTMLResponse
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

_POLICY: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

# Addresses are relative to the page, so that they also work behind a proxy with a path prefix.
_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Nova Workers API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/assets/swagger-ui.css">
</head>
<body>
<div id="reference"></div>
<script src="docs/assets/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""

_START: Final = """\
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  presets: [SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
  validatorUrl: null,
});
"""

_router = APIRouter(include_in_schema=False)


@_router.get("/docs")
async def reference() -> HTMLResponse:
    """Return the page."""
    return HTMLResponse(_PAGE, headers=_POLICY)


@_router.get("/docs/start.js")
async def start() -> Response:
    """Return the start script: inline scripts are not allowed."""
    return Response(_START, media_type="text/javascript")


@_router.get("/openapi.json")
async def document(request: Request) -> Response:
    """Return the OpenAPI document, encoded once: it is half a megabyte, and needs no key."""
    app: FastAPI = request.app
    if not hasattr(app.state, "openapi_json"):
        # Seconds of computing: in a thread, so that other requests go on, and once for all that ask meanwhile.
        app.state.openapi_json = asyncio.create_task(asyncio.to_thread(_encoded_document, app))
    return Response(await asyncio.shield(app.state.openapi_json), media_type="application/json")


def _encoded_document(app: FastAPI) -> bytes:
    return orjson.dumps(app.openapi())


routes: tuple[BaseRoute, ...] = (
    *_router.routes,
    Mount("/docs/assets", StaticFiles(packages=[("fastapi_standalone_docs", "static/swagger")])),
)
