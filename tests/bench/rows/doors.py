"""What a turn costs that a client follows through a door, beside one that a client of the fleet's own API follows."""

import asyncio
import secrets
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.bench.figures import Figure, Result
from tests.bench.installed import Site
from tests.bench.stage import Bench, scripted

WITH_DOORS: Final = {"NOVA_DOORS": '["a2a", "ag-ui", "langgraph", "openai"]'}
"""The settings of a fleet with the doors that are measured: those that stream what a run says."""
_TOKENS_PER_S = 100.0
_BOUND = 1.3


@dataclass(frozen=True, slots=True)
class _Stream:
    """A request for a turn, whose response is its stream.

    Attributes:
        last: What its last event has.
        headers: Those that the protocol wants.
    """

    path: str
    body: Callable[[str], Any]
    last: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def _ag_ui_input(text: str) -> Any:
    """Return a first message: each of a thread of its own, as those of the other streams are."""
    message = {"id": "message", "role": "user", "content": text}
    return {"threadId": secrets.token_hex(8), "runId": "run", "messages": [message]}


def _a2a_call(text: str) -> Any:
    message = {"messageId": secrets.token_hex(8), "role": "ROLE_USER", "parts": [{"text": text}]}
    return {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message}}


_NATIVE: Final = _Stream("/v1/runs/stream", lambda text: {"message": text}, b"event: stream_end")
_STREAMS: Final[Mapping[str, _Stream]] = {
    "A2A": _Stream("/a2a/nova", _a2a_call, b"TASK_STATE_COMPLETED", {"A2A-Version": "1.0"}),
    "AG-UI": _Stream("/ag-ui/nova", _ag_ui_input, b'"type":"RUN_FINISHED"'),
    "LangGraph": _Stream(
        "/langgraph/runs/stream",
        lambda text: {
            "assistant_id": "nova",
            "input": {"messages": [{"role": "user", "content": text}]},
            "stream_mode": ["messages-tuple"],
        },
        b"event: end",
    ),
    "OpenAI responses": _Stream(
        "/openai/v1/responses",
        lambda text: {"model": "nova", "input": text, "stream": True},
        b"event: response.completed",
    ),
    "OpenAI chats": _Stream(
        "/openai/v1/chat/completions",
        lambda text: {"model": "nova", "messages": [{"role": "user", "content": text}], "stream": True},
        b"data: [DONE]",
    ),
}


async def measure_doors(bench: Bench) -> Result:
    """Follow turns by the native stream and through each door, in turns."""
    sizes = bench.sizes
    message = scripted({"say": "token " * sizes.tokens, "tokens_per_s": _TOKENS_PER_S})
    streams = {"native": _NATIVE, **_STREAMS}
    used_ms: dict[str, list[Mapping[str, float]]] = {name: [] for name in streams}
    async with bench.site(WITH_DOORS) as site:
        for stream in streams.values():
            await _follow(site, stream, message, sizes.token_streams)
        for _ in range(sizes.rounds):
            for name, stream in streams.items():
                site.client.close()
                with site.meter() as meter:
                    await _follow(site, stream, message, 2 * sizes.token_streams)
                used_ms[name].append(meter.details(2 * sizes.token_streams)["cpu_ms_per_run"])
    totals = {name: statistics.median(_total(used) for used in rounds) for name, rounds in used_ms.items()}
    return Result(
        "doors",
        f"CPU of a turn of {sizes.tokens} tokens followed through a door, all processes",
        tuple(
            Figure(name, totals[name] / totals["native"], "× native", bound=_BOUND)  # noqa: RUF001 - a ratio
            for name in _STREAMS
        ),
        notes=tuple(
            f"{name}: {totals[name]:.1f} ms a turn; "
            + ", ".join(f"{each} {statistics.median(u[each] for u in rounds):.1f}" for each in rounds[0])
            for name, rounds in used_ms.items()
        ),
        details={"cpu_ms_per_run": used_ms},
    )


def _total(used: Mapping[str, float]) -> float:
    return sum(ms for process, ms in used.items() if process != "load generator")


async def _follow(site: Site, stream: _Stream, message: str, count: int) -> None:
    async def follow() -> None:
        end = bytearray()

        def see(piece: bytes, _: float) -> None:
            end.extend(piece)
            del end[: -len(piece) - len(stream.last)]

        answer = await site.client.post(stream.path, stream.body(message), headers=stream.headers, on_piece=see)
        assert answer.status == 200, (answer.status, bytes(end))
        assert stream.last in end, bytes(end)

    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(follow())
            await asyncio.sleep(0.05)
