"""The doors that the contract is held against. A new door joins with its client."""

from __future__ import annotations

from typing import Final

import pytest

from tests.integration.api.doors.a2a_client import A2aDoor
from tests.integration.api.doors.ag_ui_client import AgUiDoor
from tests.integration.api.doors.chat_client import ChatDoor
from tests.integration.api.doors.door_clients import Ability, DoorClient
from tests.integration.api.doors.langgraph_client import LangGraphDoor
from tests.integration.api.doors.mcp_client import McpDoor
from tests.integration.api.doors.openai_client import OpenAIDoor

DOORS: Final[tuple[DoorClient, ...]] = (A2aDoor(), AgUiDoor(), LangGraphDoor(), McpDoor(), OpenAIDoor(), ChatDoor())


def each_door(*can: Ability) -> pytest.MarkDecorator:
    """Run a test for each door whose protocol can all of this."""
    doors = [door for door in DOORS if door.can.issuperset(can)]
    return pytest.mark.parametrize("door", doors, ids=lambda door: door.name)
