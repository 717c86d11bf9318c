"""How soon a newcomer with a wrong key is given the reason: on the stream, and by the command line."""

import asyncio
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from nova_workers.base.stopping import stop_tasks
from nova_workers.devstack.first_start import KEY_FILE
from tests.bench.figures import Figure, Result, percentile
from tests.bench.http import LoadClient
from tests.bench.installed import installed_environment, running_up
from tests.bench.stage import Bench
from tests.support.servers.model_server import Status, model_server

_BOUND_S = 2.0
_EVENT = b"provider_unavailable"
_LINE = "⏸ waiting: ".encode()
_TIMEOUT_S = 30.0
_REFUSED = Status(401, "authentication_error", "invalid x-api-key")


async def measure_notice(bench: Bench) -> Result:
    """Start the fleet as users do with a key that the provider refuses, and send it messages."""
    streams_s: list[float] = []
    commands_s: list[float] = []
    with tempfile.TemporaryDirectory(prefix="nova-bench-") as folder:
        home = Path(folder)
        async with model_server() as provider:
            provider.reply(_REFUSED)
            given = {
                "NOVA_DEFAULT_ENGINE": "anthropic",
                "NOVA_MODEL__API_KEY": "sk-ant-wrong",
                "NOVA_MODEL__BASE_URL": provider.url,
            }
            async with running_up(home, given) as (state, _):
                await asyncio.sleep(bench.sizes.settled_s)
                key = (home / KEY_FILE).read_text(encoding="ascii").strip()
                for _ in range(bench.sizes.notices):
                    streams_s.append(await _stream_s(state.api_url, key))
                    commands_s.append(await _command_s(state.api_url, key))
    return Result(
        "notice",
        "a wrong key of a model provider: from sending a message to the reason why it waits",
        (
            Figure("stream, the first message", streams_s[0], "s", bound=_BOUND_S),
            Figure("stream, the slowest", max(streams_s), "s", bound=_BOUND_S),
            Figure("`nova send`, p50", percentile(commands_s, 0.5), "s", bound=_BOUND_S),
            Figure("`nova send`, the slowest", max(commands_s), "s"),
        ),
        notes=(
            f"{len(streams_s)} streams and as many commands, in turns, {bench.sizes.settled_s:g} s after `nova up`. "
            "The provider, a server on loopback, refuses the key with 401. A command counts from the start of its "
            "process, which imports for 0.7 s of CPU.",
        ),
        details={"streams_s": streams_s, "commands_s": commands_s},
    )


async def _stream_s(api_url: str, key: str) -> float:
    """Return how many seconds a stream takes to name the provider. It would go on while the run waits."""
    client = LoadClient(api_url, key)
    named = asyncio.Event()
    took_s = 0.0

    def on_piece(piece: bytes, at_s: float) -> None:
        nonlocal took_s
        if _EVENT in piece and not named.is_set():
            took_s = at_s - began_s
            named.set()

    began_s = time.perf_counter()
    sending = asyncio.create_task(client.post("/v1/runs/stream", {"message": "Hello"}, on_piece=on_piece))
    async with asyncio.timeout(_TIMEOUT_S):
        await named.wait()
    await stop_tasks([sending])
    client.close()
    return took_s


async def _command_s(api_url: str, key: str) -> float:
    """Return how many seconds the command takes to print the reason."""
    env = installed_environment({"NOVA_API_URL": api_url, "NOVA_API_KEY": key})
    began_s = time.perf_counter()
    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nova_workers.cli", "send", "Hello"),
        env=env,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert command.stderr is not None
    async with asyncio.timeout(_TIMEOUT_S):
        while _LINE not in await command.stderr.readline():
            assert not command.stderr.at_eof(), "the command ended without the reason"
    took_s = time.perf_counter() - began_s
    with suppress(ProcessLookupError):
        command.kill()
    await command.communicate()
    return took_s
