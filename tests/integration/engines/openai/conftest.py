"""The openai engine before a model server that can misbehave, in both wire forms."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, Protocol

import pytest

from nova_workers.engines.openai import Catalog, Key, OpenAIEngine, OpenAIProvider
from nova_workers.engines.openai.provider import WireForm
from tests.contract.engines.stage import Bench, TurnRecorder
from tests.support.servers.model_server import ModelServer, model_server

SECRET_KEY = "local-key-of-this-server"


class MakeEngine(Protocol):
    """Builds an engine whose provider ``local`` is the server; see the fixture."""

    def __call__(self, api: WireForm, *others: OpenAIProvider, **given: Any) -> OpenAIEngine: ...


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    """The model server."""
    async with model_server() as server:
        yield server


@pytest.fixture
async def make_engine(server: ModelServer) -> AsyncIterator[MakeEngine]:
    """Return a function that builds engines, without retries. Named arguments are fields of the provider."""
    async with AsyncExitStack() as stack:

        def make(api: WireForm, *others: OpenAIProvider, **given: Any) -> OpenAIEngine:
            keys = given.pop("keys", (Key(api_key=SECRET_KEY),))
            max_retries = given.pop("max_retries", 0)
            fallbacks = given.pop("fallbacks", None)
            first_byte_timeout_s = given.pop("first_byte_timeout_s", 120.0)
            provider = OpenAIProvider("local", f"{server.url}/v1", api, keys, **given)
            engine = OpenAIEngine(
                Catalog([provider, *others], default_model="local/some-model"),
                max_retries=max_retries,
                fallbacks=fallbacks,
                first_byte_timeout_s=first_byte_timeout_s,
            )
            stack.push_async_callback(engine.close)
            return engine

        yield make


@pytest.fixture(params=["chat", "responses"])
def api(request: pytest.FixtureRequest) -> WireForm:
    """Each wire form."""
    return request.param


@pytest.fixture
def engine(make_engine: MakeEngine, api: WireForm) -> OpenAIEngine:
    """The engine in each wire form."""
    return make_engine(api)


@pytest.fixture
async def bench() -> Bench:
    """Tools to call."""
    return Bench()


@pytest.fixture
def recorder() -> TurnRecorder:
    """Callbacks that write everything down."""
    return TurnRecorder()
