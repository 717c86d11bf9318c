"""An API whose servers are nowhere, for its routes and its OpenAPI document, which takes seconds to make."""

from __future__ import annotations

from functools import cache

from fastapi import FastAPI

from api.app import build_app
from api.late_modules import load_all
from nova_workers.base.config import Settings


@cache
def idle_api() -> FastAPI:
    """Return the application of this process. Its document is made once: copy it before a change."""
    nowhere = {"database_url": "postgresql://nobody@127.0.0.1:1/none", "redis_url": "redis://127.0.0.1:1/0"}
    return load_all(build_app(Settings.model_validate(nowhere)))
