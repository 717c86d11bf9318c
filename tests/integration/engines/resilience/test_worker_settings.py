"""The operator's settings reach the engine of a worker."""

import socket
from typing import Any

from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.bootstrap.worker import build_worker
from nova_workers.contracts.engine import EngineOptions, EngineResult
from tests.integration.engines.resilience.stage import FINE, LIMITED, REFUSED, key, keys_used
from tests.support.servers.model_server import Hang, ModelServer, Stream


async def _run(settings: Settings, server: ModelServer, turns: int = 1, **model: Any) -> list[EngineResult]:
    given = {"base_url": server.url, **model}
    worker = build_worker(Settings.model_validate({**settings.model_dump(), "model": given}))
    try:
        options = EngineOptions(model="sonnet")
        return [await worker.engines["anthropic"].run("hi", options, "sandbox") for _ in range(turns)]
    finally:
        await worker.aclose()


PROFILES = [{"name": "main", "api_key": "key-main"}, {"name": "spare", "api_key": "key-spare"}]


async def test_redis_keys_of_profiles_do_not_reveal_a_key(
    settings: Settings, server: ModelServer, redis: Redis
) -> None:
    server.reply_when(key("main"), LIMITED)
    server.reply(FINE)
    await _run(settings, server, profiles=PROFILES)
    await _run(settings, server, profiles=PROFILES)
    assert keys_used(server) == ["main", "spare", "spare"]
    names = [name.decode() async for name in redis.scan_iter("nova:model:*:rests:*")]
    assert [name.split(":")[4:6] for name in names] == [["rests", "main"]]
    assert "key-main" not in names[0]


async def test_a_replaced_key_does_not_inherit_the_rest_of_the_old_one(settings: Settings, server: ModelServer) -> None:
    server.reply_when(key("old"), REFUSED)
    server.reply(FINE)
    (refused,) = await _run(settings, server, api_key="key-old")
    (fine,) = await _run(settings, server, api_key="key-new")
    assert refused.error is not None
    assert (refused.error.kind, fine.text) == ("auth_failure", "Well done")


async def test_a_rate_limit_by_alias_counts_for_the_model_that_it_means(
    settings: Settings, server: ModelServer, redis: Redis
) -> None:
    server.reply(FINE)
    await _run(settings, server, api_key="k", rate_limits={"sonnet": {"requests_per_minute": 100}})
    assert [name async for name in redis.scan_iter("nova:model:anthropic:limits*")]


async def test_the_operators_prices_override_the_list(settings: Settings, server: ModelServer) -> None:
    usage = {
        "input_tokens": 1_000_000,
        "output_tokens": 100_000,
        "cache_read_input_tokens": 1_000_000,
        "cache_creation_input_tokens": 0,
    }
    server.reply(Stream(FINE.parts, usage=usage))
    (result,) = await _run(settings, server, api_key="k", prices={"sonnet": {"input": 2.0, "output": 10.0}})
    assert result.usage.tokens.cost_usd == 2.0 + 1.0 + 0.2


async def test_a_worker_asks_redis_rarely_about_a_healthy_model(
    settings: Settings, server: ModelServer, redis: Redis
) -> None:
    server.reply(FINE)
    await _run(settings, server, api_key="k")
    # The server is other tests' too: only what is done to this one's database counts.
    number = redis.connection_pool.connection_kwargs["db"]
    asked = 0
    async with redis.monitor() as monitor:
        await _run(settings, server, turns=5, api_key="k")
        await redis.echo("that was all")
        async for seen in monitor.listen():
            if "that was all" in seen["command"]:
                break
            asked += seen["db"] == number and seen["command"].upper().startswith("EVALSHA")
    assert 1 <= asked <= 2


async def test_a_worker_serves_its_metrics_at_the_configured_address(settings: Settings) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for given, host in (({}, "127.0.0.1"), ({"metrics_host": "0.0.0.0"}, "0.0.0.0")):
        worker = build_worker(
            Settings.model_validate({**settings.model_dump(), "worker": {"metrics_port": port, **given}})
        )
        try:
            assert worker.metrics_server is not None
            assert (worker.metrics_server.host, worker.metrics_server.port) == (host, port)
        finally:
            await worker.aclose()


async def test_a_response_that_does_not_begin_within_the_setting_times_out(
    settings: Settings, server: ModelServer
) -> None:
    server.reply(Hang())
    (result,) = await _run(settings, server, api_key="k", first_byte_timeout_s=0.1, max_retries=0)
    assert result.error is not None
    assert "within 0.1 s" in result.error.message
