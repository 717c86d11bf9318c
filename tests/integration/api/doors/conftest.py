"""An API with every door."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import get_args
from unittest import mock

import pytest

from nova_workers.base.config import Settings
from nova_workers.base.vocabulary import DoorName
from tests.integration.api.conftest import Api, served
from tests.integration.api.manual_worker import Tenant
from tests.integration.api.shared_servers import SharedServers


async def _no_rehearsal(_: object) -> None:
    """Stand in for the rehearsal of messages."""


@pytest.fixture(scope="module")
def shared_api_url(shared: SharedServers) -> str:
    """URL of an API with all doors, which tests of a module share."""
    # Each door is asked with keys that are not valid, by one address.
    api = shared.settings.api.model_copy(update={"failed_keys_per_minute": 10_000})
    settings = shared.settings.model_copy(update={"doors": get_args(DoorName), "api": api})
    with mock.patch("api.app.rehearse_messages", _no_rehearsal):
        return shared.enter(served(settings))[0]


@pytest.fixture
async def own_api(settings: Settings, own_tenant: Tenant) -> AsyncGenerator[Api]:
    """An API of the test's own, with all doors."""
    effects = settings.effects.model_copy(update={"embedding_provider": "off"})
    doors = get_args(DoorName)
    with mock.patch("api.app.rehearse_messages", _no_rehearsal):
        async with served(settings.model_copy(update={"effects": effects, "doors": doors})) as (url, state):
            api = Api(url, state, own_tenant)
            async with api.http:
                yield api
