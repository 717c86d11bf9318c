"""A client of ACP: an editor with `nova acp`. When that ends, it starts another one, and loads its session."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from acp import PROTOCOL_VERSION, RequestError, text_block
from acp.client.connection import ClientSideConnection
from acp.interfaces import Client

from tests.chaos.history import DoorReading
from tests.chaos.runner.doors.exchange import Exchange, Json
from tests.support.processes.preloaded import PreloadedProcess, stream_of

_AWAY: Final = {"unavailable", "outcome_unknown"}
_ENDS: Final = {"succeeded": "end_turn", "failed": "failed", "canceled": "cancelled"}
"""How a prompt is answered whose run ended so."""
_PATIENCE: Final = (3, 10, 1_000)
_LINE_BYTES: Final = 1 << 24


@dataclass
class _Editor:
    """What an editor shows of a session. It has no files and no terminal, and permits nothing."""

    texts: dict[str, str] = field(default_factory=dict[str, str])
    updates: int = 0
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    """Set after so many updates as the editor waits for before it ends."""
    patience: int = 0

    def on_connect(self, conn: Any) -> None:
        """Take the connection; nothing is needed of it."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        """Show an update."""
        match update.session_update:
            case "agent_message_chunk":
                self.texts[update.message_id] = self.texts.get(update.message_id, "") + update.content.text
            case "agent_thought_chunk" if "begins again" in update.content.text:
                # What was shown of the message is void.
                self.texts.popitem()
            case _:
                pass
        self.updates += 1
        if self.updates == self.patience:
            self.enough.set()

    def begin(self, patience: int = 0) -> None:
        """Show nothing of before."""
        self.texts, self.updates, self.patience = {}, 0, patience
        self.enough.clear()


async def prompt_agent(exchange: Exchange, key: str, message: str) -> DoorReading:
    """Send a prompt over a `nova acp` that may end at any moment, and load the session until it has the whole turn."""
    editor, session, outcome = _Editor(), "", ""
    with tempfile.TemporaryDirectory() as home:
        while not session or not outcome:
            with _again_if_away():
                async with _agent(exchange, editor, Path(home)) as agent:
                    session = session or (await agent.new_session(cwd=home, mcp_servers=[])).session_id
                    outcome = await _prompt(exchange, agent, editor, session, message)
            await exchange.pause()
        run = await _ended(exchange, key, session)
        while outcome == "lost":
            with _again_if_away():
                async with _agent(exchange, editor, Path(home)) as agent:
                    editor.begin()
                    await agent.load_session(cwd=home, session_id=session, mcp_servers=[])
                    outcome = _ENDS[run["status"]]
    texts = "".join(editor.texts.values())
    return DoorReading(0.0, "acp", key, run["id"], outcome, texts)


async def _prompt(exchange: Exchange, agent: ClientSideConnection, editor: _Editor, session: str, message: str) -> str:
    """Send a prompt, again while the fleet may not have it. Return why it ended, or ``lost`` if the run goes on."""
    editor.begin(exchange.choose(_PATIENCE))
    while True:
        prompt = asyncio.ensure_future(agent.prompt(session, [text_block(message)]))
        leaves = asyncio.ensure_future(editor.enough.wait())
        await asyncio.wait((prompt, leaves), return_when=asyncio.FIRST_COMPLETED)
        leaves.cancel()
        if not prompt.done():
            prompt.cancel()
            return "lost"
        try:
            return prompt.result().stop_reason
        except RequestError as error:
            if "run_id" in _about(error):
                return "lost" if _is_away(error) else "failed"
            if not _is_away(error):
                raise
        await exchange.pause()


@contextmanager
def _again_if_away() -> Generator[None]:
    """Pass over what a client tries again for: `nova acp` ended, or the fleet did not answer it."""
    try:
        yield
    except ConnectionError:
        pass
    except RequestError as error:
        if not _is_away(error):
            raise


def _is_away(error: RequestError) -> bool:
    return _about(error).get("code") in _AWAY


def _about(error: RequestError) -> Json:
    return cast("Json", error.data or {})


async def _ended(exchange: Exchange, key: str, session: str) -> Json:
    """Return the only run of a session, once it has ended."""
    while True:
        path = f"/v1/runs?thread_id={session}"
        page = await exchange.until_answered(
            path, key, run_of=lambda page: page["items"][0]["id"], recorded_as="session/prompt"
        )
        (run,) = page["items"]
        if run["status"] in _ENDS:
            return run
        await exchange.pause()


@asynccontextmanager
async def _agent(exchange: Exchange, editor: _Editor, home: Path) -> AsyncGenerator[ClientSideConnection]:
    """Start `nova acp`; kill it at the end of the block."""
    loop, log = asyncio.get_running_loop(), stream_of(home / "log")
    (its_in, our_out), (our_in, its_out) = os.pipe(), os.pipe()
    env = {**os.environ, "NOVA_HOME": str(home), "NOVA_API_URL": exchange.url(), "NOVA_API_KEY": exchange.api_key}
    process = PreloadedProcess(
        "nova_workers.cli",
        ["acp", "--agent", exchange.agent],
        env=env,
        streams=(stream_of(its_in), stream_of(its_out), log),
        cwd=Path.cwd(),
    )
    reader = asyncio.StreamReader(limit=_LINE_BYTES)
    incoming, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(our_in, "rb", 0))
    outgoing, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(our_out, "wb", 0)
    )
    agent = ClientSideConnection(cast("Client", editor), asyncio.StreamWriter(outgoing, protocol, None, loop), reader)
    try:
        await agent.initialize(protocol_version=PROTOCOL_VERSION)
        yield agent
    finally:
        process.kill()
        for end in (its_in, its_out):
            os.close(end)
        await agent.close()
        incoming.close()
        outgoing.close()
