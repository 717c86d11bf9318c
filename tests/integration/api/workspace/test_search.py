"""Search over conversations, over HTTP."""

import json
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nova_workers.base.config import Settings
from nova_workers.domain.effects.rules.local import LocalEmbeddings
from nova_workers.domain.effects.rules.setup import embedding_provider
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api, Serve
from tests.integration.api.manual_worker import Tenant, make_tenant
from tests.integration.history.past_conversations import PastConversations
from tests.requirements import proves
from tests.support.data.seeded_embeddings import seeded_vector
from tests.support.servers.api_stub import api_stub


async def _found(api: Api, **params: Any) -> list[str]:
    answer = await api.http.get("/v1/search", params=params)
    assert answer.status_code == 200, answer.text
    return [item["message_id"] for item in answer.json()["items"]]


async def test_a_hit_has_text_time_and_thread(api: Api, database: Database) -> None:
    past = PastConversations(database)
    thread = await past.thread(api.tenant.id, title="Birds")
    run = await past.say("The heron", "A bird.", thread=thread)
    answer = await api.http.get("/v1/search", params={"q": "heron"})
    (hit,) = answer.json()["items"]
    (turn,) = (await api.http.get(f"/v1/threads/{thread[1]}/turns")).json()["items"]
    score = hit.pop("score")
    assert 0 < score < 1
    assert hit == {
        "message_id": run.message_ids[0],
        "turn_id": turn["id"],
        "depth": turn["depth"],
        "thread_id": thread[1],
        "thread_title": "Birds",
        "thread_opening": None,
        "agent_id": "nova",
        "role": "user",
        "said_at": "2026-06-01T12:00:00Z",
        "excerpt": "The heron",
        "found_by": ["words"],
    }
    assert answer.json()["by_meaning"] is False
    egret = await past.say("The egret", tenant_id=api.tenant.id)
    asked = [{"type": "text", "text": "The egret"}]
    await database.execute("UPDATE runs SET content = :asked WHERE id = :id", asked=asked, id=egret.run_id)
    (untitled,) = (await api.http.get("/v1/search", params={"q": "egret"})).json()["items"]
    assert (untitled["thread_title"], untitled["thread_opening"]) == (None, "The egret")


async def test_filters_bound_a_search(api: Api, database: Database) -> None:
    past, tenant_id = PastConversations(database), api.tenant.id
    old = await past.say("The heron one", tenant_id=tenant_id, days_ago=30)
    new = await past.say("The heron two", tenant_id=tenant_id, agent_id="helper")
    assert set(await _found(api, q="heron")) == {old.message_ids[0], new.message_ids[0]}
    assert await _found(api, q="heron", agent_id="helper") == [new.message_ids[0]]
    assert await _found(api, q="heron", since="2026-05-15") == [new.message_ids[0]]
    assert await _found(api, q="heron", until="2026-05-15T00:00:00Z") == [old.message_ids[0]]
    assert len(await _found(api, q="heron", limit=1)) == 1


@proves("history.own")
async def test_another_tenants_conversations_are_not_found(api: Api, database: Database, other_tenant: Tenant) -> None:
    await PastConversations(database).say("The heron", tenant_id=other_tenant.id)
    assert await _found(api, q="heron") == []


@proves("history.deleted")
async def test_a_thread_that_is_deleted_over_http_is_not_found(api: Api, database: Database) -> None:
    run = await PastConversations(database).say("The heron", tenant_id=api.tenant.id)
    assert await _found(api, q="heron")
    assert (await api.http.delete(f"/v1/threads/{run.thread_id}")).status_code == 204
    assert await _found(api, q="heron") == []
    assert await database.fetchval("SELECT count(*) FROM message_texts") == 0


async def test_meaning_is_compared_if_a_server_makes_vectors(
    serve: Serve, settings: Settings, database: Database
) -> None:
    async def answer(request: Request) -> Response:
        texts = json.loads(await request.body())["input"]
        # A query for a bird means the heron.
        vectors = [seeded_vector("The heron" if text == "bird" else text) for text in texts]
        return JSONResponse({"data": [{"index": at, "embedding": vector} for at, vector in enumerate(vectors)]})

    async with api_stub() as server:
        server.on("POST", "/v1/embeddings", answer)
        given = {"embedding_provider": "openai", "embedding_base_url": server.url}
        effects = settings.effects.model_copy(update=given)
        api = await serve(settings.model_copy(update={"effects": effects}))
        provider = embedding_provider(effects)
        assert provider is not None
        past = PastConversations(database, provider)
        run = await past.say("The heron", tenant_id=api.tenant.id)
        await past.say("The bread", tenant_id=api.tenant.id)
        result = (await api.http.get("/v1/search", params={"q": "bird"})).json()
        await provider.close()
    assert result["by_meaning"] is True
    assert result["items"][0]["message_id"] == run.message_ids[0]
    assert result["items"][0]["found_by"] == ["meaning"]


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({}, "q"),
        ({"q": ""}, "q"),
        ({"q": " \t"}, "q"),
        ({"q": "a\x00b"}, "q"),
        ({"q": "x" * 2_001}, "q"),
        ({"q": "x", "limit": 51}, "limit"),
        ({"q": "x", "limit": 0}, "limit"),
        ({"q": "x", "agent_id": "No One"}, "agent_id"),
        ({"q": "x", "since": "soon"}, "since"),
        ({"q": "x", "since": "-11251685"}, "since"),
        ({"q": "x", "since": "1780000000.5"}, "since"),
        ({"q": "x", "since": "0001-01-01T00:00:00+14:00"}, "since"),
        ({"q": "x", "until": "9999-12-31T23:59:59-14:00"}, "until"),
        ({"q": "x", "since": "2026-02-01", "until": "2026-01-01"}, "until"),
    ],
)
async def test_bad_input_is_refused_with_its_field(api: Api, params: dict[str, Any], field: str) -> None:
    answer = await api.http.get("/v1/search", params=params)
    assert answer.status_code == 422, answer.text
    assert field in answer.json()["errors"][0]["field"]


@pytest.mark.parametrize("q", ["'", "\\", "a & !b | c:*", "🦩", "<->", "%"])
async def test_queries_have_no_operators(api: Api, q: str) -> None:
    assert await _found(api, q=q) == []


async def test_a_search_needs_the_scope_of_runs(api: Api, database: Database) -> None:
    weak = await make_tenant(database, scopes=("workspace",))
    async with api.client(weak.key) as client:
        assert (await client.get("/v1/search", params={"q": "x"})).status_code == 403


@proves("search.by-meaning")
async def test_the_api_compares_meaning_with_the_local_model(
    serve: Serve, settings: Settings, database: Database
) -> None:
    effects = settings.effects.model_copy(update={"embedding_provider": "local"})
    api = await serve(settings.model_copy(update={"effects": effects}))
    model = api.state.services.embeddings
    assert isinstance(model, LocalEmbeddings)
    assert model.child_pid is None, "it starts with the first search"
    past = PastConversations(database, model)
    run = await past.say("My cat is called Miro", tenant_id=api.tenant.id)
    await past.say("The invoice of May is paid", tenant_id=api.tenant.id)
    result = (await api.http.get("/v1/search", params={"q": "Which pets do they have?"})).json()
    assert result["by_meaning"] is True
    assert result["items"][0]["message_id"] == run.message_ids[0]
    assert result["items"][0]["found_by"] == ["meaning"]
    await model.close()
