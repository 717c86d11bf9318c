"""The check of `nova doctor` for orchestrations: what their agents do not get, although it was granted."""

from nova_workers.base.errors import InvalidInput, NovaError
from nova_workers.base.vocabulary import AgentRole
from nova_workers.cli.operations.findings import Finding
from nova_workers.client.client import NovaClient
from nova_workers.contracts.orchestration import CapabilityTools
from nova_workers.domain.orchestrations.rules.config.parsing import parse_config
from nova_workers.domain.orchestrations.rules.config.values import OrchestrationConfig
from nova_workers.domain.orchestrations.rules.models.registry import known_models
from nova_workers.domain.orchestrations.rules.spawning.granting import withheld

_SECTION = "capability_profiles"
_LATEST = 100
_ROLES: tuple[AgentRole, ...] = ("WORKER", "EXPERT", "REVIEWER")


async def check_orchestrations(client: NovaClient) -> list[Finding]:
    """Find tools that agents of recent orchestrations get only by name, until the configuration decides which.

    Args:
        client: With the scopes `runs` and `agents`.
    """
    stored = await client.orchestration_config.get()
    if _SECTION in stored.text:
        return []
    recent = await client.orchestrations.list(limit=_LATEST)
    owners = sorted({orchestration.agent_id for orchestration in recent.items})
    if not owners:
        return []
    try:
        config = parse_config(stored.text, stored.models_text, known=known_models({}))
    except InvalidInput:
        # It may name models that only the server knows; the roles' tools do not depend on them.
        config = OrchestrationConfig()
    known: CapabilityTools = {
        each["name"]: None
        if each["open_ended"]
        else {tool["name"]: "reads" if tool["read_only"] else "changes" for tool in each["tools"]}
        for each in await client.capabilities()
    }
    return [finding for owner in owners if (finding := await _withheld(client, owner, config, known)) is not None]


async def _withheld(
    client: NovaClient, owner: str, config: OrchestrationConfig, known: CapabilityTools
) -> Finding | None:
    try:
        spec = (await client.agents.get(owner)).spec
    except NovaError:
        return None  # it was deleted meanwhile
    missing = {role: withheld(spec, config.capability_profiles.of(role), known) for role in _ROLES}
    if not missing["WORKER"]:
        return None
    others = "; experts and reviewers get those that only read" if missing["REVIEWER"] else ""
    detail = f"workers of {owner} do not get {', '.join(missing['WORKER'])}{others}"
    fix = (
        f"give a role more in the section `{_SECTION}` of the configuration of orchestrations, or write "
        f"`{_SECTION}: {{}}` to keep this: `nova orchestrations config set FILE`"
    )
    return Finding("tools in orchestrations", "warn", detail, fix)
