"""An API with every door."""

from __future__ import annotations

from unittest import mock

import pytest

from tests.integration.api.conftest import served
from tests.integration.api.doors.every_door import DOORS
from tests.integration.api.shared_servers import SharedServers


async def _no_rehearsal(_: object) -> None:
    """Stand in for the rehearsal of messages."""


@pytest.fixture(scope="module")
def shared_api_url(shared: SharedServers) -> str:
    """URL of an API with all doors, which tests of a module share."""
    settings = shared.settings.model_copy(update={"doors": tuple({door.door: None for door in DOORS})})
    with mock.patch("api.app.rehearse_messages", _no_rehearsal):
        return shared.enter(served(settings))[0]
