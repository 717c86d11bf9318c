"""Checks what a version of Codex offers a model: one run against a server on loopback, before the first turn."""

import asyncio
from dataclasses import replace
from typing import Final

from nova_workers.base.errors import EngineFailure
from nova_workers.engines.codex.installed import HARMLESS, Installed, capture, offered_tools
from nova_workers.engines.mcp.toolbox import ToolDefinition
from nova_workers.engines.programs.frames import Ended
from nova_workers.engines.programs.home import make_home
from nova_workers.engines.programs.run import ProgramRun
from nova_workers.engines.programs.tool_server import SERVER
from nova_workers.engines.programs.transcript import Prompt
from nova_workers.engines.programs.vendor import ProgramSettings, Request, Vendor

_PROBE_S: Final = 60.0
_TURN_TOOLS: Final = f"mcp__{SERVER}"
_PROXIES: Final = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"})


async def check_offer(vendor: Vendor, installed: Installed, settings: ProgramSettings, request: Request) -> None:
    """Return if the program offers the model of a request the turn's tools, and none that has an effect of its own.

    Nothing of the request but its model and effort is used, and the provider is not asked.

    Raises:
        EngineFailure: It offers others, hides the turn's, or does not ask its model.
    """
    asked = replace(request, instructions="Check.", prompt=Prompt("Check.", ()), output_schema=None)
    environment = {name: value for name, value in settings.environment.items() if name not in _PROXIES}
    home = await asyncio.to_thread(make_home)
    run = ProgramRun(vendor, home, _tools)
    try:
        async with capture() as seen:
            local = replace(settings, environment=environment, base_url=seen.url, api_key="none")
            await run.start(await asyncio.to_thread(vendor.launch, home, local, asked))
            ended = await _until_asked(run, seen.asked)
    finally:
        await run.close()
    what = f"{installed.version} with the model {request.model!r}"
    if seen.request is None:
        raise _refusal(what, "asked its model nothing" + (f": {ended.complaints[-500:]}" if ended is not None else ""))
    offered = offered_tools(seen.request)
    own = sorted(set(offered) - HARMLESS - {_TURN_TOOLS})
    if own:
        raise _refusal(what, f"offers tools of its own: {', '.join(own)}")
    if _TURN_TOOLS not in offered:
        raise _refusal(what, "does not offer the turn's tools")


async def _tools() -> dict[str, ToolDefinition]:
    schema = {"type": "object", "properties": {}}
    return {"check": ToolDefinition("check", "Does nothing.", schema, idempotent=True)}


async def _until_asked(run: ProgramRun, asked: asyncio.Event) -> Ended | None:
    """Wait for the request. Return the end of the program if that comes first, and None if neither comes."""
    waiting = asyncio.create_task(asked.wait())
    try:
        async with asyncio.timeout(_PROBE_S):
            while not asked.is_set():
                reading = asyncio.create_task(run.next(_PROBE_S))
                await asyncio.wait((waiting, reading), return_when=asyncio.FIRST_COMPLETED)
                if reading.done() and isinstance(frame := reading.result(), Ended):
                    return frame
                reading.cancel()
    except TimeoutError:
        return None
    finally:
        waiting.cancel()
    return None


def _refusal(what: str, problem: str) -> EngineFailure:
    return EngineFailure(
        f"{what} {problem}. Nothing here could authorize those, so no turn uses it. Use another model, or install a "
        "version of @openai/codex that this version of Nova Workers is tested with (docs/engines.md).",
        kind="unknown",
        retryable=False,
    )
