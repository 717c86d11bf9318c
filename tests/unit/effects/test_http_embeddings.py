"""Embeddings from a server, and the switch between providers."""

import json
from collections.abc import Callable

import httpx2
import pytest

from nova_workers.base.config import EffectSettings
from nova_workers.base.errors import ConfigurationError, InvalidInput, Unavailable
from nova_workers.domain.effects.rules.http import HttpEmbeddings
from nova_workers.domain.effects.rules.local import LocalEmbeddings
from nova_workers.domain.effects.rules.setup import embedding_provider


def _provider(answer: Callable[[httpx2.Request], httpx2.Response]) -> HttpEmbeddings:
    return HttpEmbeddings(
        base_url="http://embeddings/v1/", model="small", api_key="k", transport=httpx2.MockTransport(answer)
    )


async def test_one_request_embeds_a_batch_in_order() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        assert str(request.url) == "http://embeddings/v1/embeddings"
        assert request.headers["authorization"] == "Bearer k"
        asked = json.loads(request.content)
        assert asked == {"model": "small", "input": ["a", "b"], "encoding_format": "float"}
        return httpx2.Response(
            200, json={"data": [{"index": 1, "embedding": [0, 1]}, {"index": 0, "embedding": [1, 0]}]}
        )

    provider = _provider(answer)
    assert await provider.embed(["a", "b"]) == [[1.0, 0.0], [0.0, 1.0]]
    assert await provider.embed([]) == []
    await provider.close()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, InvalidInput),
        (413, InvalidInput),
        (401, ConfigurationError),
        (404, ConfigurationError),
        (429, Unavailable),
        (500, Unavailable),
        (503, Unavailable),
    ],
)
async def test_the_status_decides_about_retries(status: int, error: type[Exception]) -> None:
    provider = _provider(lambda _: httpx2.Response(status, text="no"))
    with pytest.raises(error, match=str(status)):
        await provider.embed(["a"])
    await provider.close()


@pytest.mark.parametrize(
    "body",
    [
        "<html>",
        "[]",
        '{"data": []}',
        '{"data": [{"index": 0}]}',
        '{"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [1, 2]}]}',
        '{"data": [{"index": 0, "embedding": ["x"]}, {"index": 1, "embedding": [1]}]}',
    ],
)
async def test_a_malformed_answer_is_retried(body: str) -> None:
    provider = _provider(lambda _: httpx2.Response(200, text=body))
    with pytest.raises(Unavailable):
        await provider.embed(["a", "b"])
    await provider.close()


async def test_an_unreachable_server_is_retried() -> None:
    def gone(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused", request=request)

    provider = _provider(gone)
    with pytest.raises(Unavailable, match="ConnectError"):
        await provider.embed(["a"])
    await provider.close()


async def test_the_settings_choose_the_provider() -> None:
    assert embedding_provider(EffectSettings(embedding_provider="off")) is None
    local = embedding_provider(EffectSettings())
    assert isinstance(local, LocalEmbeddings)
    assert local.child_pid is None
    server = embedding_provider(
        EffectSettings(embedding_provider="openai", embedding_base_url="http://e", embedding_model="small")
    )
    assert isinstance(server, HttpEmbeddings)
    assert server.model == "small"
    await local.close()
    await server.close()
    with pytest.raises(ConfigurationError, match="NOVA_EFFECTS__EMBEDDING_BASE_URL"):
        embedding_provider(EffectSettings(embedding_provider="openai"))
