"""Embeddings of the OpenAI door: forms, bounds, and the SDK's way to ask."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, get_args

import httpx2
import openai
import pytest
from fastapi import FastAPI

from api.doors.openai.embeddings import router
from api.doors.service import SendingDoor
from api.errors import install_error_handlers

MODEL = "small"


class Embedding:
    """A door whose fleet has a model of three numbers."""

    def embedding_model(self) -> str:
        """Return the name of the model."""
        return MODEL

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return vectors that say how long texts are."""
        return [[float(len(text)), 0.5, -1.0] for text in texts]


@pytest.fixture
async def client() -> AsyncGenerator[openai.AsyncOpenAI]:
    """The SDK's client of the routes."""
    app = FastAPI()
    install_error_handlers(app)
    app.include_router(router)
    app.dependency_overrides[get_args(SendingDoor)[1].dependency] = Embedding
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), timeout=60) as http:
        yield openai.AsyncOpenAI(base_url="http://nova/openai/v1", api_key="nova_x", http_client=http, max_retries=0)


async def test_the_sdk_reads_vectors_in_both_forms(client: openai.AsyncOpenAI) -> None:
    # Without a format the SDK asks for base64, and decodes it.
    decoded = await client.embeddings.create(model=MODEL, input=["a", "bcd"])
    plain = await client.embeddings.create(model=MODEL, input="a", encoding_format="float", dimensions=3)
    assert [each.embedding for each in decoded.data] == [[1.0, 0.5, -1.0], [3.0, 0.5, -1.0]]
    assert [each.embedding for each in plain.data] == [[1.0, 0.5, -1.0]]
    assert (decoded.model, decoded.data[1].index, decoded.usage.prompt_tokens) == (MODEL, 1, 2)


@pytest.mark.parametrize(
    ("fields", "status", "named"),
    [
        ({"input": [1, 2, 3]}, 422, "input.0"),
        ({"input": [[1, 2]]}, 422, "input.0"),
        ({"input": []}, 422, "input"),
        ({"input": ["a"] * 257}, 422, "input"),
        ({"input": "  "}, 422, "input"),
        ({"input": ["a", "b" * 16_001]}, 422, "input.1"),
        ({"input": ["b" * 15_000] * 7}, 422, "input"),
        ({"input": None}, 422, "input"),
        ({"dimensions": 2}, 422, "dimensions"),
        ({"encoding_format": "int8"}, 422, "encoding_format"),
        ({"model": "text-embedding-3-small"}, 404, "model"),
    ],
)
async def test_what_the_model_cannot_embed_is_refused_with_its_field(
    client: openai.AsyncOpenAI, fields: dict[str, Any], status: int, named: str
) -> None:
    body = {"model": MODEL, "input": "a", **fields}
    with pytest.raises(openai.APIStatusError) as refused:
        await client.post("/embeddings", cast_to=object, body=body)
    assert refused.value.status_code == status
    problem: Any = refused.value.response.json()
    assert [each["field"] for each in problem["errors"]] == [named]
