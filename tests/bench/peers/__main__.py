"""The fleet, the floor and other servers of agents side by side.

    python -m tests.bench.peers FOLDER

Installs the others below the folder, each in an environment of its own, and measures all in turns: conversations of one
message, which is answered reversed. LangGraph's development server keeps all in memory; it has no other without a
licence. Aegra stores runs in Postgres and sends them through Redis, as ours does. Each has its defaults otherwise, and
LangGraph as many jobs as there are clients.
"""

import argparse
import asyncio
import statistics
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import uvloop
from rich.console import Console
from rich.table import Table

from nova_workers.base.release import release
from tests.bench.http import Answer
from tests.bench.installed import Site, floor, nova_up
from tests.bench.patterns import closed_loop, new_conversation, one_by_one
from tests.bench.peers.environments import AEGRA, LANGGRAPH
from tests.bench.peers.picture import draw
from tests.bench.peers.servers import aegra, langgraph
from tests.bench.servers import Servers, bench_servers

_WARM_UP_S = 4.0
_SETTLE_S = 1.0
"""After a window with many clients, before one alone is measured: effects are still due."""
_MESSAGE = "Which is it?"
_Turn = Callable[[Site, str], Awaitable[float]]


@dataclass(slots=True)
class _Measured:
    """What was measured of a server, a figure a round."""

    turns_per_s: list[float] = field(default_factory=list[float])
    cpu_ms: list[float] = field(default_factory=list[float])
    one_ms: list[float] = field(default_factory=list[float])
    first_ms: list[float] = field(default_factory=list[float])

    def middle(self) -> Mapping[str, float]:
        return {
            "turns a second, clients at once": statistics.median(self.turns_per_s),
            "CPU a turn, ms": statistics.median(self.cpu_ms),
            "one conversation after the other, p50, ms": statistics.median(self.one_ms),
            "first event of a stream, p50, ms": statistics.median(self.first_ms),
        }


async def _peer_conversation(site: Site, message: str) -> float:
    """Create a thread, send it a message and wait for its answer; return how many seconds both requests took."""
    began_s, thread_id = await _peer_thread(site)
    answer = await site.client.post(f"/threads/{thread_id}/runs/wait", _input(message))
    _expect(answer, message[::-1].encode())
    return answer.ended_s - began_s


async def _peer_first_event(site: Site, message: str) -> float:
    """Create a thread, send it a message and follow it; return how many seconds its first event took."""
    began_s, thread_id = await _peer_thread(site)
    return await _first(site, f"/threads/{thread_id}/runs/stream", _input(message), began_s, b"event: metadata")


async def _first_event(site: Site, message: str) -> float:
    thread = await site.client.post("/v1/threads", {})
    _expect(thread)
    path = f"/v1/threads/{thread.json()['id']}/runs/stream"
    return await _first(site, path, {"message": message}, thread.began_s, b"event: stream_start")


async def _first(site: Site, path: str, body: Mapping[str, object], began_s: float, event: bytes) -> float:
    first_s: list[float] = []

    def see(piece: bytes, at_s: float) -> None:
        if not first_s and event in piece:
            first_s.append(at_s)

    _expect(await site.client.post(path, body, on_piece=see))
    return first_s[0] - began_s


async def _peer_thread(site: Site) -> tuple[float, str]:
    thread = await site.client.post("/threads", {})
    _expect(thread)
    return thread.began_s, thread.json()["thread_id"]


def _input(message: str) -> Mapping[str, object]:
    return {"assistant_id": "echo", "input": {"text": message}}


def _expect(answer: Answer, part: bytes = b"") -> None:
    assert answer.status in (200, 201), (answer.status, answer.body)
    assert part in answer.body, answer.body


async def _measure(site: Site, into: _Measured, turns: tuple[_Turn, _Turn], options: argparse.Namespace) -> None:
    conversation, first_event = turns
    # A server closes connections that were idle while another one was measured.
    site.client.close()
    with site.meter() as meter:
        window = await closed_loop(site, conversation, options.clients, options.seconds)
    used = meter.details(window.turns)["cpu_ms_per_run"]
    into.turns_per_s.append(window.turns / window.wall_s)
    into.cpu_ms.append(sum(ms for name, ms in used.items() if name != "load generator"))
    await asyncio.sleep(_SETTLE_S)
    one = await one_by_one(site, conversation, options.idle, gap_s=0)
    into.one_ms.append(statistics.median(one.took_s) * 1_000)
    first = await one_by_one(site, first_event, options.idle)
    into.first_ms.append(statistics.median(first.took_s) * 1_000)


async def compare(servers: Servers, options: argparse.Namespace) -> Mapping[str, Mapping[str, float]]:
    """Measure all in turns, and return each one's figures by its name."""
    async with AsyncExitStack() as stack:
        sites = {
            f"Nova Workers {release()}": await stack.enter_async_context(nova_up()),
            "floor": await stack.enter_async_context(floor(servers)),
        }
        ours = frozenset(sites)
        for peer, running in (
            (LANGGRAPH, langgraph(options.folder, options.clients)),
            (AEGRA, aegra(options.folder, servers)),
        ):
            site, version = await stack.enter_async_context(running)
            sites[f"{peer.name} {version}"] = site
        measured = {name: _Measured() for name in sites}
        turns = {
            name: (new_conversation, _first_event) if name in ours else (_peer_conversation, _peer_first_event)
            for name in sites
        }
        for name, site in sites.items():
            await closed_loop(site, turns[name][0], 4, _WARM_UP_S)
        for number in range(options.rounds):
            for name in sorted(sites, reverse=bool(number % 2)):
                await _measure(sites[name], measured[name], turns[name], options)
    return {name: each.middle() for name, each in measured.items()}


def main() -> None:
    """Measure, print a table, and write a picture if a file for it is named."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peers", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the others are installed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=8.0, help="a window with all clients lasts")
    parser.add_argument("--idle", type=int, default=60, help="conversations of one client a window")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw them")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    with bench_servers() as servers:
        figures = uvloop.run(compare(servers, options))
    table = Table("", *figures, title=f"medians of {options.rounds} rounds, {options.clients} clients")
    for figure in next(iter(figures.values())):
        table.add_row(figure, *(f"{each[figure]:.1f}" for each in figures.values()))
    Console().print(table)
    if options.json:
        options.json.write_bytes(orjson.dumps(figures, option=orjson.OPT_INDENT_2))
    if options.picture:
        options.picture.write_text(draw(figures), encoding="utf-8")


if __name__ == "__main__":
    main()
