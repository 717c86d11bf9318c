import asyncio

import httpx2
import pytest

from nova_workers.base.errors import (
    ConfigurationError,
    IdempotencyMismatch,
    InvalidInput,
    LimitExceeded,
    NotFound,
    NovaError,
    Rejected,
    ThreadBusy,
    TooManyRequests,
    Unavailable,
)
from nova_workers.cli.command import build
from nova_workers.cli.terminal.text_input import blame_file
from nova_workers.client.client import NovaClient
from nova_workers.client.problems import error_of_response, error_of_transport
from nova_workers.contracts.bodies import Problem
from nova_workers.contracts.http.tasks import TaskCreate
from nova_workers.contracts.http.wire import AgentCreate

_REQUEST = httpx2.Request("GET", "http://127.0.0.1:8700/v1/runs")


def _response(status: int, body: bytes) -> httpx2.Response:
    return httpx2.Response(status, content=body, request=_REQUEST)


def _problem(status: int, code: str, **fields: object) -> httpx2.Response:
    problem = Problem.model_validate({"title": "T", "status": status, "detail": "It is so.", "code": code, **fields})
    return _response(status, problem.model_dump_json().encode())


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (409, "thread_busy", ThreadBusy),
        (409, "idempotency_mismatch", IdempotencyMismatch),
        (404, "not_found", NotFound),
        (503, "unavailable", Unavailable),
        (429, "too_many_streams", TooManyRequests),
        (409, "limit_exceeded", LimitExceeded),
        (413, "body_too_large", LimitExceeded),
        (400, "invalid_cursor", InvalidInput),
        (418, "a_code_of_tomorrow", Rejected),
    ],
)
def test_a_problem_becomes_the_error_of_its_code_else_of_its_status(
    status: int, code: str, kind: type[NovaError]
) -> None:
    error = error_of_response(_problem(status, code))
    assert type(error) is kind
    assert error.message == "It is so."
    assert error.fields["status"] == status


def test_context_of_a_problem_is_kept() -> None:
    error = error_of_response(_problem(409, "thread_busy", context={"active_run_id": "run_1"}))
    assert error.fields["active_run_id"] == "run_1"


def test_refused_fields_are_named() -> None:
    errors = [{"field": "max_turns", "message": "Input should be less than 1000"}]
    error = error_of_response(_problem(422, "invalid_input", errors=errors))
    assert error.message == "It is so. (max_turns: Input should be less than 1000)"
    assert error.fields["errors"] == errors


def test_what_the_detail_says_already_is_not_repeated() -> None:
    errors = [{"field": f"plugins.{name}", "message": f"plugins.{name}: not permitted"} for name in ("a", "b")]
    detail = "\n".join(each["message"] for each in errors)
    error = error_of_response(_problem(422, "invalid_input", detail=detail, errors=errors))
    assert error.message == "plugins.a: not permitted\nplugins.b: not permitted"


def test_an_engine_failure_is_never_the_answer_to_a_request() -> None:
    assert type(error_of_response(_problem(500, "engine_failure"))) is NovaError


@pytest.mark.parametrize(("status", "kind"), [(502, Unavailable), (500, NovaError), (404, NotFound)])
def test_an_answer_of_a_proxy_is_quoted(status: int, kind: type[NovaError]) -> None:
    error = error_of_response(_response(status, b"<html>\n<h1>Bad</h1>" + b"x" * 5000))
    assert type(error) is kind
    assert "<html> <h1>Bad</h1>" in error.message
    assert len(error.message) < 500


def test_a_refused_connection_names_the_command_that_starts_a_fleet() -> None:
    error = error_of_transport(httpx2.ConnectError("no", request=_REQUEST), "http://127.0.0.1:8700")
    assert "No fleet answers at http://127.0.0.1:8700" in error.message
    assert "nova up" in error.message


def test_a_malformed_value_is_refused_with_our_own_message() -> None:
    with pytest.raises(InvalidInput, match=r"^resources\.0: value: 'notaurl' is not an http or https address"):
        build(TaskCreate, {"title": "x", "resources": [{"kind": "url", "value": "notaurl"}]})


@pytest.mark.parametrize("stream", [False, True])
async def test_https_to_a_plain_port_is_refused_at_once_with_the_right_url(stream: bool) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with NovaClient(f"https://127.0.0.1:{port}", "k") as nova, asyncio.timeout(60):
            with pytest.raises(ConfigurationError, match=rf"Is it http://127\.0\.0\.1:{port}\?"):
                await (anext(nova.runs.events("run_1")) if stream else nova.agents.get("nova"))


def test_a_refused_file_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"^agent\.yaml: modle: there is no such field; did you mean 'model'\?"):
        with blame_file("agent.yaml"):
            build(AgentCreate, {"id": "a", "name": "A", "modle": "x"})
