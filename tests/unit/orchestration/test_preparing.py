"""What a spawn resolves to before the tree is locked."""

from __future__ import annotations

from typing import Any, cast

import pytest

from nova_workers.base.errors import AgentSpawnError
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.orchestration import SpawnRequest
from nova_workers.domain.orchestrations.rules.config.values import OrchestrationConfig
from nova_workers.domain.orchestrations.rules.models.choice import ChosenModel, ModelChooser
from nova_workers.domain.orchestrations.rules.spawning.areas import WorkArea
from nova_workers.domain.orchestrations.rules.spawning.granting import Giver, form_of
from nova_workers.domain.orchestrations.rules.spawning.preparing import PreparedSpawn, prepare_spawn
from nova_workers.domain.orchestrations.sql.locking import LockedTree

OWNER = AgentSpec(name="Owner", trust="controlled")
AREA = WorkArea("/w/nova", "/w/nova/orc_1")


class _Models:
    async def choose(self, *_: object, **__: object) -> ChosenModel:
        return ChosenModel("m", None)


def _server(name: str, *tags: str) -> dict[str, Any]:
    return {"type": "http", "url": f"http://127.0.0.1:9/{name}", **({"tags": list(tags)} if tags else {})}


CONFIG = OrchestrationConfig.model_validate(
    {
        "plugins": {"shared": _server("shared", "sql"), "same": _server("same", "sql")},
        "experts": {
            "db": {
                "expert_id": "db",
                "system_prompt": "You know databases.",
                "tools": ["Read", "Bash"],
                "cwd": "/srv/db",
                "mcp_servers": {"own": _server("own"), "shared": _server("shared"), "same": _server("other")},
            }
        },
    }
)
HELD = {name: form_of(plugin) for name, plugin in CONFIG.plugins.items()}


async def prepared(request: SpawnRequest, giver: Giver) -> PreparedSpawn:
    tree = cast(LockedTree, type("Tree", (), {"tenant_id": "ten_1"}))
    return await prepare_spawn(cast(ModelChooser, _Models()), tree, OWNER, CONFIG, request, giver=giver)


@pytest.mark.parametrize("parent", ["master", "worker"])
async def test_an_expert_gets_of_its_profile_what_its_parent_holds(parent: str) -> None:
    servers = None if parent == "master" else HELD
    request = SpawnRequest("Which index?", role="EXPERT", expert_id="db")
    child = await prepared(request, Giver(OWNER, {}, AREA, servers=servers))
    # Its own one of the same name is another server than the plugin.
    assert set(child.held.servers) == ({"own", "shared", "same"} if parent == "master" else {"shared"})
    assert child.spec.capabilities["mcp"].config["servers"] == child.held.servers
    assert (child.held.native, child.held.cwd) == (("Read",), None), "Neither is it an error of who asks."


async def test_a_worker_gives_the_plugins_that_it_has() -> None:
    giver = Giver(OWNER, {}, AREA, servers={"shared": HELD["shared"]})
    child = await prepared(SpawnRequest("Write SQL."), giver)
    assert set(child.held.servers) == {"shared"}
    with pytest.raises(AgentSpawnError, match=r"you have no plugin 'same' that you could give. Yours: shared"):
        await prepared(SpawnRequest("Write SQL.", mcp_servers=("same",)), giver)
