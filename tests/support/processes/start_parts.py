"""What each process of a fleet builds at its start, built once in the server that forks them (see `preloaded`)."""

from __future__ import annotations

from aiogram.types import Message, Update

from api.direct_route import DirectRoute
from api.routes.runs import submissions
from nova_workers.contracts.http.wire import RunView
from nova_workers.domain.capabilities.rules.seam import input_schema
from tests.support.harness.grants import all_grants


def build() -> None:
    """Import, read and build what needs no server and no loop, and does not depend on settings."""
    # A worker: the modules of tools, the entry points of packages, the schemas of tools.
    registry = all_grants()
    for given in registry.tool_inputs([item.name for item in registry.discover()]):
        input_schema(given)
    # An API: the types of a message and its answer.
    for route in submissions.router.routes:
        if isinstance(route, DirectRoute):
            route.prepare()
    RunView.model_rebuild()
    # The Telegram channel: the types of updates.
    for model in (Message, Update):
        model.model_rebuild()
