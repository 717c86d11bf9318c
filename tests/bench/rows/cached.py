"""How much of each request the provider may take from its cache, over a long conversation."""

import base64
import io
import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from PIL import Image

from tests.bench.figures import Figure, Result
from tests.bench.stage import Bench
from tests.support.servers.model_server import ModelServer, Part, Stream, model_server

_MODEL = "claude-sonnet-4-5"
_TOKENS_OF_IMAGE = 1_600
_CHARS_A_TOKEN = 4
_PICTURE_EVERY = 3
_WORDS = "The quick brown fox jumps over the lazy dog. " * 20
_OVER_WINDOW = 190_000
_SUMMARY = "You condense"

Json = dict[str, Any]


async def measure_cached(bench: Bench) -> Result:
    """Send messages of one thread, every third with a picture; each calls a tool, and one ends over the window."""
    turns = bench.sizes.cached_turns
    async with model_server() as server:
        _script(server, compacts_after=turns // 2)
        env = {"NOVA_DEFAULT_ENGINE": "anthropic", "NOVA_MODEL__API_KEY": "k", "NOVA_MODEL__BASE_URL": server.url}
        async with bench.stage(env=env) as stage:
            agent = {"id": "keeper", "name": "Keeper", "model": _MODEL, "capabilities": {"memory": {}}}
            made = await stage.client.post("/v1/agents", {**agent, "instructions": _WORDS})
            assert made.status == 201, made.body
            given: Json = {"agent_id": "keeper"}
            for turn in range(turns):
                answer = await stage.client.post("/v1/runs/wait", {**given, "message": _message(turn)})
                assert b'"status":"succeeded"' in answer.body, answer.body
                given = {"thread_id": answer.json()["thread_id"]}
        summaries = sum(_is_summary(request) for request in server.requests)
        requests = [request for request in server.requests if _is_turn(request)]
        assert not server.refused, server.refused
    shares = [_share(before, request) for before, request in pairwise(requests)]
    whole = sum(total for _, total in shares)
    each = [cached / total for cached, total in shares]
    return Result(
        "cached",
        f"share of requests that the prompt cache may have, {turns} turns with pictures, tools and a compaction",
        (
            Figure("of all tokens", sum(cached for cached, _ in shares) / whole, "", bound=0.9, at_least=True),
            Figure("median request", sorted(each)[len(each) // 2], ""),
            Figure("worst request", min(each), ""),
        ),
        notes=(
            f"{len(requests)} requests, {summaries} of a summary beside them. A request's share is what equals the one "
            "before it up to a cache mark of that one, counted by the model server, which refuses what the provider "
            f"refuses. A picture counts as {_TOKENS_OF_IMAGE} tokens, text as a quarter of its characters.",
        ),
        details={"shares": each},
    )


def _script(server: ModelServer, *, compacts_after: int) -> None:
    answer = Stream((Part("text", [_WORDS]),))
    server.reply(Stream((Part("tool", ("toolu_1", "memory_list", {})),)))
    server.reply_when(lambda _, body: _is_summary(body), Stream((Part("text", ["They talked of foxes and dogs."]),)))
    over = Stream((Part("text", [_WORDS]),), usage={"input_tokens": _OVER_WINDOW, "output_tokens": 200})
    server.reply_when(lambda _, body: _has_result(body) and f"Turn {compacts_after}." in _last_words(body), over)
    server.reply_when(lambda _, body: _has_result(body), answer)


def _is_summary(body: Mapping[str, Any]) -> bool:
    return _SUMMARY in json.dumps(body.get("system"))


def _is_turn(body: Mapping[str, Any]) -> bool:
    """Return whether a request is of the thread: the stage has tried its workers with another agent."""
    return _WORDS.strip() in json.dumps(body.get("system"))


def _has_result(body: Json) -> bool:
    return any(block["type"] == "tool_result" for block in body["messages"][-1]["content"])


def _last_words(body: Json) -> str:
    """Return the newest message of the person."""
    messages = [json.dumps(each["content"]) for each in body["messages"] if each["role"] == "user"]
    return next(text for text in reversed(messages) if "tool_result" not in text)


def _message(turn: int) -> list[Json]:
    message: list[Json] = [{"type": "text", "text": f"Turn {turn}. {_WORDS}"}]
    if turn % _PICTURE_EVERY == 0:
        written = io.BytesIO()
        # Every second one has more pixels than the provider takes in a conversation of many images.
        Image.new("RGB", (2_400 if turn % 2 else 800, 600), (turn, 0, 0)).save(written, "PNG")
        data = base64.b64encode(written.getvalue()).decode()
        source = {"type": "base64", "media_type": "image/png", "data": data}
        message.insert(0, {"type": "image", "source": source})
    return message


def _share(before: Json, request: Json) -> tuple[float, float]:
    """Return the tokens of a request that the cache may have, and all of its tokens."""
    (old, marks), (new, _) = _blocks(before), _blocks(request)
    same = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    cached = max((mark for mark in marks if mark <= same), default=0)
    sizes = [_tokens(block) for block in new]
    return sum(sizes[:cached]), sum(sizes)


def _blocks(request: Json) -> tuple[list[str], list[int]]:
    """Return the blocks in the order of the cache, without marks, and how many of them each mark covers."""
    parts = [("tool", tool) for tool in request["tools"]] + [("system", block) for block in request["system"]]
    parts += [(message["role"], block) for message in request["messages"] for block in message["content"]]
    marks = [at + 1 for at, (_, block) in enumerate(parts) if "cache_control" in block]
    if "cache_control" in request:
        marks.append(len(parts))
    unmarked = [(kind, {key: value for key, value in block.items() if key != "cache_control"}) for kind, block in parts]
    return [json.dumps(part) for part in unmarked], marks


def _tokens(block: str) -> float:
    return _TOKENS_OF_IMAGE if '"base64"' in block else len(block) / _CHARS_A_TOKEN
