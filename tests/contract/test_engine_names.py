"""Agents are checked by names of engines in processes that have no engine."""

from importlib.util import find_spec

from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import OpenAISettings, Settings
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.vocabulary import ENGINE_NAMES
from nova_workers.bootstrap.engines import build_engines
from nova_workers.engines.native import ShellSettings


async def test_the_engines_that_an_agent_may_name_are_those_that_a_worker_can_have(
    settings: Settings, redis: Redis
) -> None:
    settings = settings.model_copy(update={"openai": OpenAISettings(model="some-model")})
    engines = build_engines(settings, redis, SystemClock(), Metrics(CollectorRegistry()), ShellSettings())
    extra = set() if find_spec("claude_agent_sdk") else {"claude_agent"}
    assert set(engines) | extra == set(ENGINE_NAMES)
    for engine in engines.values():
        await engine.close()
