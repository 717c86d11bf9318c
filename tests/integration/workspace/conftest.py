"""What tests of the workspace begin with."""

import pytest

from nova_workers.ledger.database import Database
from nova_workers.workspace.tasks.service import Tasks
from tests.integration.capabilities.tool_caller import add_tenants
from tests.integration.workspace.task_hands import Doorbells


@pytest.fixture
def bells() -> Doorbells:
    """The doorbells that were rung."""
    return Doorbells()


@pytest.fixture
async def tasks(database: Database, bells: Doorbells) -> Tasks:
    """The tasks of two tenants, each with the agents `a` and `b`."""
    await add_tenants(database)
    return Tasks(database, bells)
