"""The check of `nova doctor` of the providers that agents use, by what a worker found when it last tried them."""

from nova_workers.base.errors import NovaError
from nova_workers.base.keys import provider_reports
from nova_workers.cli.operations.checks import REDIS_AWAY, open_redis
from nova_workers.cli.operations.findings import Finding
from nova_workers.cli.target import Target
from nova_workers.client.client import NovaClient
from nova_workers.domain.orchestrations.rules.models.availability import ProviderReport

_PAGE = 100


async def check_providers(redis_url: str | None, target: Target | None, default_engine: str) -> list[Finding]:
    """Find engines in use whose providers workers could not reach; a worker also has engines that nothing uses.

    Args:
        redis_url: Where workers report; None is no finding.
        target: The API, which knows the agents.
        default_engine: Of agents that name none.
    """
    if redis_url is None:
        return []
    try:
        async with open_redis(redis_url) as redis:
            report = await redis.get(provider_reports())
    except REDIS_AWAY:
        # The check of the broker names the reason.
        return []
    if report is None:
        return []
    used = {default_engine} if target is None else await _used_engines(target, default_engine)
    fix = "runs with it wait, and no model of it is chosen: set its key, or what the message names, for the workers"
    return [
        Finding(f"provider {engine}/{name}" if name else f"provider {engine}", "warn", why, fix)
        for engine, providers in ProviderReport.model_validate_json(report).engines.items()
        for name, why in providers.items()
        if why is not None and engine in used
    ]


async def _used_engines(target: Target, default_engine: str) -> set[str]:
    """Return the engines of the newest agents; the default one alone if the API does not show them."""
    try:
        async with NovaClient(target.url, target.api_key) as client:
            agents = (await client.agents.list(limit=_PAGE)).items
    except NovaError:
        # The checks of API and key name the reason.
        return {default_engine}
    return {agent.spec.engine or default_engine for agent in agents}
