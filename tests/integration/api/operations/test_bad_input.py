"""Bad input gets a clear problem that names the field, and leaves nothing behind."""

import base64
import time
from collections.abc import AsyncGenerator
from typing import Any, get_args

import orjson
import pytest
from dirty_equals import IsPartialDict
from pydantic import ValidationError

from api.app import build_app
from nova_workers.base.config import Settings
from nova_workers.contracts.orders import AiWorkOrderV1, PolicyDocument
from nova_workers.domain.orchestrations.rules.config.values import ConfigDocument
from tests.integration.api.conftest import Api, Serve
from tests.requirements import proves
from tests.support.data import media_samples
from tests.support.data.request_bodies import all_parts, request_bodies

JSON = {"Content-Type": "application/json"}


def _deep(levels: int) -> bytes:
    return b'{"message": "x", "metadata": {"a": ' + b"[" * levels + b"]" * levels + b"}}"


_DATA = "message.0.source.data"


def _source(kind: str, source: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "source": source}


def _image(media_type: str, raw: bytes) -> dict[str, Any]:
    return _source("image", {"type": "base64", "media_type": media_type, "data": base64.b64encode(raw).decode()})


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "message"),
        ({"message": ""}, "message"),
        ({"message": "  \n\t"}, "message"),
        ({"message": []}, "message"),
        ({"message": None}, "message"),
        ({"message": 7}, "message"),
        ({"message": {"type": "text", "text": "x"}}, "message"),
        ({"message": ["x"]}, "message"),
        ({"message": [{"type": "text"}]}, "message.0"),
        ({"message": [{"type": "text", "text": " "}]}, "message.0"),
        ({"message": [{"type": "text", "text": "x"}, {"type": "tool_use", "id": "1"}]}, "message.1.type"),
        ({"message": [{}]}, "message.0.type"),
        ({"message": [{"type": ["text"]}]}, "message.0.type"),
        ({"message": [{"type": "image"}]}, "message.0.source"),
        ({"message": [{"type": "image", "source": {"type": "ftp"}}]}, "message.0.source"),
        ({"message": [{"type": "image", "source": {"type": "base64", "data": "aGk="}}]}, "message.0.source.media_type"),
        ({"message": [_image("image/png", b"no image")]}, _DATA),
        ({"message": [_image("image/png", media_samples.JPEG)]}, _DATA),
        ({"message": [_image("image/png", media_samples.png()[:-4])]}, _DATA),
        ({"message": [_image("image/png", media_samples.png(9_000, 1))]}, _DATA),
        ({"message": [_image("image/tiff", media_samples.png())]}, "message.0.source.media_type"),
        ({"message": [_image("application/pdf", media_samples.PDF)]}, "message.0.source.media_type"),
        ({"message": [{**_image("application/pdf", b"no pdf"), "type": "document"}]}, _DATA),
        ({"message": [{**_image("image/png", media_samples.png()), "detail": "high"}]}, "message.0.detail"),
        ({"message": [_source("image", {"type": "base64", "media_type": "image/png", "data": 7})]}, _DATA),
        ({"message": [_source("image", {"type": "base64", "media_type": "image/png", "data": "?"})]}, _DATA),
        ({"message": [_source("image", {"type": "url", "url": "ftp://x"})]}, "message.0.source.url"),
        ({"message": [_source("image", {"type": "file", "file_id": "f", "x": 1})]}, "message.0.source.x"),
        (
            {"message": [_source("document", {"type": "text", "media_type": "text/html", "data": "x"})]},
            "message.0.source.media_type",
        ),
        (
            {"message": [_source("document", {"type": "content", "content": [{"type": "text", "text": " "}]})]},
            "message.0.source.content.0",
        ),
        ({"message": [{"type": "text", "text": "x", "cache_control": {}}]}, "message.0.cache_control"),
        ({"message": [{"type": "text", "text": "x"}] * 201}, "message"),
        ({"message": "x", "on_busy": "explode"}, "on_busy"),
        ({"message": "x", "queue": "express"}, "queue"),
        ({"message": "x", "max_turns": 0}, "max_turns"),
        ({"message": "x", "max_turns": "many"}, "max_turns"),
        ({"message": "x", "model": ""}, "model"),
        ({"message": "x", "metadata": []}, "metadata"),
        ({"message": "x", "metadata": {str(n): n for n in range(65)}}, "metadata"),
        ({"message": "x", "mesage": "y"}, "mesage"),
        ({"message": "nul \x00 inside"}, "message"),
        ({"message": "x", "metadata": {"deep": [{"er": "\x00"}]}}, "metadata.deep.0.er"),
        ({"message": "x", "metadata": {"\x00key": 1}}, "metadata"),
        ({"message": "x", "agent_id": "Not A Slug"}, "agent_id"),
        ({"message": "x", "agent_id": "a" * 65}, "agent_id"),
    ],
)
async def test_a_malformed_message_is_refused_by_field(api: Api, body: dict[str, Any], field: str) -> None:
    for path in ("/v1/runs", "/v1/runs/wait", "/v1/runs/stream"):
        answer = await api.http.post(path, json=body)
        assert answer.status_code == 422, (path, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert problem == IsPartialDict(status=422, code="invalid_input", instance=path)
        named = [error["field"] for error in problem["errors"]]
        assert any(name == field or name.startswith(f"{field}.") for name in named), named
    assert await api.count("runs") == 0
    assert await api.count("threads") == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"not json",
        b'{"message": "\xff\xfe"}',
        b'{"message": "caf\xe9"}',
        b'{"message": "\\ud800"}',
        b'{"message": "\xed\xa0\x80"}',
        b'{"message": "x", "metadata": {"n": NaN}}',
        b'{"message": "x", "metadata": {"n": 1e999}}',
        b'\xef\xbb\xbf{"message": "x"}',
        '{"message": "x"}'.encode("utf-16"),
        _deep(100),
        _deep(100_000),
    ],
)
@proves("security.bodies")
async def test_a_body_that_cannot_be_read_is_refused(api: Api, body: bytes) -> None:
    answer = await api.http.post("/v1/runs", content=body, headers=JSON)
    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] == "malformed_request"


async def test_numbers_too_large_for_columns_are_kept_as_json(api: Api) -> None:
    body = (
        b'{"message": "x", "metadata": {"n": 123456789012345678901234567890, "deep": ' + b"[" * 50 + b"]" * 50 + b"}}"
    )
    answer = await api.http.post("/v1/runs", content=body, headers=JSON)
    assert answer.status_code == 202
    stored = await api.http.get(f"/v1/runs/{answer.json()['id']}")
    assert stored.json()["metadata"]["n"] == pytest.approx(1.2345678901234568e29)


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "", "multipart/form-data"])
async def test_a_body_of_another_type_is_refused(api: Api, content_type: str) -> None:
    answer = await api.http.post("/v1/runs", content=b'{"message": "x"}', headers={"Content-Type": content_type})
    assert answer.status_code == 415
    assert answer.json()["code"] == "unsupported_media_type"


async def test_text_beyond_any_model_s_window_is_refused(serve: Serve, settings: Settings) -> None:
    limits = settings.api.model_copy(update={"max_message_chars": 10})
    api = await serve(settings.model_copy(update={"api": limits}))
    assert (await api.http.post("/v1/runs", json={"message": "x" * 10})).status_code == 202
    for message in ("x" * 11, [{"type": "text", "text": "x" * 6}] * 2):
        answer = await api.http.post("/v1/runs", json={"message": message})
        assert answer.status_code == 422
        assert "at most 10" in answer.json()["detail"]
    run_id = (await api.http.post("/v1/runs", json={"message": "x"})).json()["id"]
    assert (await api.http.patch(f"/v1/runs/{run_id}", json={"message": "x" * 11})).status_code == 422


@pytest.mark.parametrize("declared", [True, False])
@proves("security.bodies")
async def test_a_body_with_too_many_bytes_is_refused_declared_or_not(
    serve: Serve, settings: Settings, declared: bool
) -> None:
    limits = settings.api.model_copy(update={"max_body_bytes": 1_000})
    api = await serve(settings.model_copy(update={"api": limits}))
    body = orjson.dumps({"message": "x" * 2_000})

    async def pieces() -> AsyncGenerator[bytes]:
        for start in range(0, len(body), 100):
            yield body[start : start + 100]

    answer = await api.http.post("/v1/runs", content=body if declared else pieces(), headers=JSON)
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "body_too_large"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/threads/{}",
        "/v1/threads/{}/messages",
        "/v1/threads/{}/turns",
        "/v1/threads/{}/runs",
        "/v1/runs/{}",
        "/v1/runs/{}/events",
        "/v1/runs/{}/wait",
        "/v1/agents/{}",
        "/v1/agents/{}/versions",
    ],
)
@pytest.mark.parametrize(
    "odd_id",
    ["nope", "%00", "a%00b", "%ED%A0%80", "%F0%9F%98%80", "x" * 300, "run_01", "' OR 1=1 --", "..%2F..%2Fetc", "%25s"],
)
async def test_a_malformed_id_is_not_found(api: Api, path: str, odd_id: str) -> None:
    answer = await api.http.get(path.format(odd_id))
    assert answer.status_code == 404, answer.text
    assert answer.json()["code"] == "not_found"


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/v1/runs", {"status": "asleep"}),
        ("/v1/runs", {"queue": "express"}),
        ("/v1/runs", {"thread_id": "a b"}),
        ("/v1/runs", {"agent_id": "UPPER"}),
        ("/v1/runs", {"limit": "0"}),
        ("/v1/runs", {"limit": "201"}),
        ("/v1/runs", {"limit": "many"}),
        ("/v1/threads", {"label": ""}),
        ("/v1/threads", {"label": "a\x00b"}),
        ("/v1/threads", {"agent_id": "\x00"}),
        ("/v1/agents", {"limit": "-1"}),
        ("/v1/keys", {"limit": "1e3"}),
    ],
)
async def test_a_filter_of_another_form_is_refused_by_name(api: Api, path: str, params: dict[str, str]) -> None:
    answer = await api.http.get(path, params=params)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == next(iter(params))


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/threads", {"agent_id": "nova", "title": ""}),
        ("POST", "/v1/threads", {"title": "x" * 201}),
        ("POST", "/v1/threads", {"label": "a\x00"}),
        ("POST", "/v1/threads", {"surprise": 1}),
        ("POST", "/v1/agents", {"id": "ok"}),
        ("POST", "/v1/agents", {"id": "Not Ok", "name": "x"}),
        ("POST", "/v1/agents", {"id": "ok", "name": "x", "trust": "total"}),
        ("POST", "/v1/agents", {"id": "ok", "name": "x", "responsibilities": [{"title": "t"}]}),
        ("POST", "/v1/agents/nova/rollback", {"version": 0}),
        ("POST", "/v1/agents/nova/rollback", {"version": 2**40}),
        ("POST", "/v1/agents/nova/rollout", {"version": 2, "steps": []}),
        ("POST", "/v1/agents/nova/rollout", {"version": 2, "steps": [{"percent": 101}]}),
        ("POST", "/v1/agents/nova/rollout", {"version": 2, "steps": [{"percent": 1, "hours": 0}]}),
        ("POST", "/v1/agents/nova/rollout", {"version": 2, "steps": [{"percent": 1, "approval": "yes"}]}),
        ("POST", "/v1/agents/nova/rollout/advance", {"step": -1}),
        ("POST", "/v1/agents/nova/rollout/stop", {"reason": ""}),
        ("PUT", "/v1/agents/nova/sampling", {"percent": 0, "judge": {"rubric": "x", "budget_usd": 1}}),
        ("PUT", "/v1/agents/nova/sampling", {"percent": 5, "judge": {"budget_usd": 1}}),
        ("PUT", "/v1/agents/nova/sampling", {"percent": 5, "judge": {"rubric": "x", "budget_usd": 1, "engine": "?"}}),
        (
            "PUT",
            "/v1/agents/nova/sampling",
            {"percent": 5, "judge": {"rubric": "x", "budget_usd": 1, "pairwise": True}},
        ),
        ("POST", "/v1/keys", {"name": ""}),
        ("POST", "/v1/keys", {"name": "x", "scopes": []}),
        ("POST", "/v1/keys", {"name": "x", "scopes": ["root"]}),
        ("POST", "/v1/keys", {"name": "x", "role": "root"}),
        ("POST", "/v1/keys", {"name": "x", "role": "viewer", "scopes": ["runs"]}),
        ("POST", "/v1/keys", {"name": "x", "networks": ["10.0.0.0/8", "10.0.0.1/8"]}),
        ("POST", "/v1/keys", {"name": "x", "expires_at": "yesterday"}),
        ("POST", "/v1/keys", {"name": "x", "expires_at": "2001-01-01T00:00:00Z"}),
        ("POST", "/v1/keys", {"name": "x", "expires_at": "2031-01-01T00:00:00"}),
        ("POST", "/v1/fleet/pause", {"scope": "planet"}),
        ("POST", "/v1/fleet/pause", {"scope": "agent"}),
        ("POST", "/v1/fleet/pause", {"scope": "tenant", "agent_id": "nova"}),
        ("POST", "/v1/runs/cancel", {"status": "succeeded"}),
        ("POST", "/v1/runs/cancel", {"run_ids": ["x"] * 1001}),
        ("POST", "/v1/runs/cancel", {"thread_id": "\x00"}),
    ],
)
async def test_other_bodies_are_checked_likewise(api: Api, method: str, path: str, body: dict[str, Any]) -> None:
    answer = await api.http.request(method, path, json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"]


async def test_an_unknown_endpoint_is_a_problem_document(api: Api) -> None:
    answer = await api.http.get("/v2/nothing")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert answer.headers["content-type"] == "application/problem+json"
    method = await api.http.put("/v1/runs")
    assert (method.status_code, method.json()["code"]) == (405, "method_not_allowed")
    assert "GET" in method.headers["allow"]


@proves("security.bodies")
async def test_the_problem_of_a_request_with_many_errors_is_bounded(api: Api) -> None:
    names = {f"{'x' * 5_000}{number}": ["y" * 5_000] for number in range(300)}
    refused = await api.http.post("/v1/notes", json={"title": "x", "content": "y", **names})
    assert refused.status_code == 422
    assert len(refused.content) < 100_000
    assert len(refused.json()["errors"]) == 50
    assert "and 251 more errors" in refused.json()["detail"]


@pytest.mark.parametrize("value", ["yes", "true", 1, "on", 0.0])
@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/runs/run_01JZ0000000000000000000000/answers", {}, "approve"),
        ("/v1/runs/run_01JZ0000000000000000000000/answers", {"approve": True}, "remember"),
        ("/v1/notes", {"title": "x", "content": "y"}, "shared"),
        ("/v1/webhooks", {"name": "x", "url": "https://example.org"}, "enabled"),
    ],
)
@proves("security.bodies")
async def test_a_boolean_is_true_or_false_and_nothing_else(
    api: Api, path: str, body: dict[str, Any], field: str, value: object
) -> None:
    refused = await api.http.post(path, json={**body, field: value})
    assert refused.status_code == 422, refused.text
    assert field in {error["field"] for error in refused.json()["errors"]}


@proves("security.bodies")
def test_a_boolean_of_every_body_is_true_or_false_and_nothing_else(settings: Settings) -> None:
    bodies = request_bodies(build_app(settings))
    models = {part for body in (*bodies, ConfigDocument, PolicyDocument, AiWorkOrderV1) for part in all_parts(body)}
    asked = 0
    for model in models:
        for name, field in model.model_fields.items():
            if bool in (field.annotation, *get_args(field.annotation)):
                for value in ("yes", "true", "on", 1, 0, 1.0):
                    with pytest.raises(ValidationError) as caught:
                        model.model_validate({name: value})
                    places = {error["loc"][0] for error in caught.value.errors()}
                    assert places & {name, field.alias}, f"{model.__name__}.{name} takes {value!r}: StrictBool"
                    asked += 1
    assert asked > 60


@proves("security.bodies")
async def test_a_boolean_of_every_query_is_true_or_false_and_nothing_else(api: Api, openapi: dict[str, Any]) -> None:
    asked = 0
    for path, operations in openapi["paths"].items():
        for method, operation in operations.items():
            for given in operation.get("parameters", ()):
                kinds = {part.get("type") for part in (given["schema"], *given["schema"].get("anyOf", ()))}
                if given["in"] != "query" or "boolean" not in kinds:
                    continue
                at = path.replace("{thread_id}", "thr_01JZ0000000000000000000000")
                for value in ("yes", "1", "on", "True", "t", ""):
                    answer = await api.http.request(method.upper(), at, params={given["name"]: value})
                    assert answer.status_code == 422, (path, given["name"], value)
                    assert given["name"] in {error["field"] for error in answer.json()["errors"]}
                for value in ("true", "false"):
                    answer = await api.http.request(method.upper(), at, params={given["name"]: value})
                    assert answer.status_code != 422, answer.text
                asked += 1
    assert asked >= 7


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00", "2030-01-01T00:00:00"])
async def test_a_time_that_has_no_place_in_utc_is_refused_for_a_key(api: Api, moment: str) -> None:
    refused = await api.http.post("/v1/keys", json={"name": "x", "scopes": ["runs"], "expires_at": moment})
    assert refused.status_code == 422, refused.text
    assert [error["field"] for error in refused.json()["errors"]] == ["expires_at"]


@pytest.mark.usefixtures("own_api")  # It measures the thread's CPU.
@proves("security.bodies")
async def test_json_of_a_million_brackets_in_texts_does_not_hold_the_loop(api: Api) -> None:
    body = b'{"message": [' + b'"[",' * 900_000 + b'"["]}'
    begun_s = time.thread_time()
    answer = await api.http.post("/v1/runs", content=body, headers=JSON)
    assert answer.status_code == 400
    assert "more than 50000 parts" in answer.json()["detail"]
    # Parsing, and what client and server do with 4 MB.
    assert time.thread_time() - begun_s < 0.5
