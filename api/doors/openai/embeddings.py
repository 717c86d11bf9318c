"""``/openai/v1/embeddings``: vectors of texts by the fleet's embedding model."""

from __future__ import annotations

import array
import base64
import sys
from typing import Annotated, Any, Final, Literal

import orjson
from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.usage import CHARS_PER_TOKEN

from ...json_body import StrictRoute
from ..service import SendingDoor
from .models import no_model

router = APIRouter(prefix="/openai/v1/embeddings", route_class=StrictRoute, include_in_schema=False)

_MAX_TEXTS: Final = 256
_MAX_CHARS: Final = 100_000
"""The limit of all texts of a request. The local model takes some 5 s of CPU for them."""
_MAX_TEXT_CHARS: Final = 16_000
"""The limit of a text, as of messages that are embedded for search."""


class CreateEmbeddings(BaseModel):
    """The body of ``POST /embeddings``."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    model: str
    input: Any
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None


@router.post("")
async def create_embeddings(body: CreateEmbeddings, door: SendingDoor) -> Response:
    """Embed texts."""
    texts = _texts(body.input)
    model = door.embedding_model()
    if body.model != model:
        raise no_model(body.model, f"The fleet embeds texts with {model!r}.")
    vectors = await door.embed(texts)
    width = len(vectors[0])
    if body.dimensions not in {None, width}:
        raise InvalidInput(f"dimensions: the vectors of {model!r} have {width} numbers, no others.", field="dimensions")
    data = [
        {"object": "embedding", "index": index, "embedding": _encoded(vector, body.encoding_format)}
        for index, vector in enumerate(vectors)
    ]
    tokens = sum(len(text) // CHARS_PER_TOKEN + 1 for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    document: JsonObject = {"object": "list", "data": data, "model": model, "usage": usage}
    return Response(orjson.dumps(document), media_type="application/json")


def _texts(given: Any) -> list[str]:
    texts: list[Any] = given if isinstance(given, list) else [given]
    if not texts or len(texts) > _MAX_TEXTS:
        raise InvalidInput(f"input must have 1 to {_MAX_TEXTS} texts.", field="input")
    for at, text in enumerate(texts):
        field = f"input.{at}" if isinstance(given, list) else "input"
        if not isinstance(text, str):
            raise InvalidInput(f"{field} must be a text: tokens are those of another model.", field=field)
        if not text.strip() or len(text) > _MAX_TEXT_CHARS:
            raise InvalidInput(f"{field} must have 1 to {_MAX_TEXT_CHARS:,} characters.", field=field)
    if sum(map(len, texts)) > _MAX_CHARS:
        raise InvalidInput(f"input has more than {_MAX_CHARS:,} characters; send it in parts.", field="input")
    return texts


def _encoded(vector: Any, form: str) -> Any:
    if form == "float":
        return list(vector)
    numbers = array.array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()
