"""What a key may write into documents that steer agents, by every door; and that each field says what it needs."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from typing import Any, get_args, get_origin

import httpx2
from pydantic import BaseModel

from api.app import build_app
from nova_workers.base.config import Settings
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.authors.rights import DOCUMENT, MESSAGE, UNDECLARED, AuthorScope, Right, rights_of
from nova_workers.contracts.http.archive import MEDIA_TYPE
from nova_workers.contracts.orders import PolicyDocument
from nova_workers.domain.agents.rules.entries import models_in
from nova_workers.domain.orchestrations.rules.config.values import OrchestrationConfig
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api, Serve
from tests.integration.api.manual_worker import make_tenant
from tests.requirements import proves
from tests.support.data.archive_rows import small_row
from tests.support.data.documents import ROOT
from tests.support.data.request_bodies import request_bodies
from tests.support.harness.grants import all_grants

Json = dict[str, Any]
CONFIG = "/v1/orchestrations/config"
_ALL = ("runs", "agents", "trust", "workspace", "secrets", "keys")
_CONTAINED: tuple[type[BaseModel], ...] = (AgentSpec, OrchestrationConfig, PolicyDocument)
"""Documents that bodies contain as texts, objects or rows of an archive, beside the configurations of capabilities."""
_STEER_NO_AGENT = {
    "AgentKill": "ends agents",
    "AgentPromptRequest": "shows a prompt, and writes nothing",
    "AiWorkOrderV1": "the content of an order, within its policy",
    "BulkCancel": "ends runs",
    "BulkRetry": "tries runs again, as they were",
    "DatasetCreate": "a name for examples",
    "DatasetPatch": "what examples must not keep",
    "EvaluationStart": "lets a version that exists answer; no tool runs but those that it names as live",
    "ExamplesAdd": "what agents are compared by; no agent reads it but in an evaluation",
    "ExamplesFromRuns": "copies what runs of the tenant were asked",
    "FeedbackGive": "an opinion of what a run did",
    "FleetPause": "pauses",
    "SamplingPut": "judges what was answered; no agent gets it",
    "RunListSave": "says which runs a person looks at",
    "KeyCreate": "a key gives what it has",
    "KeyRotate": "a key gives what it has",
    "LeaseRequest": "the state of a client",
    "MasterComplete": "the result of a program outside",
    "OrderReview": "the decision of a person",
    "OrderSecretCreate": "a secret of the fleet's own making",
    "PairingConfirm": "a right to write messages",
    "PairingRequest": "asks for a right to write messages",
    "PersonSignInCreate": "a session of a person",
    "ProvidersClear": "an operator's",
    "RolloutAdvance": "the decision of a person, on a version that was checked at the start",
    "RolloutStop": "the decision of a person",
    "RunAnswer": "the decision of a person",
    "RunFail": "ends runs",
    "SecretPut": "has a scope of its own",
    "SignInCreate": "a session of a key's holder",
    "TenantChange": "an operator's",
    "TenantCreate": "an operator's",
    "TenantPatch": "fields have scopes of their own",
    "WebhookCreate": "sends events, and steers no agent",
    "WebhookPatch": "sends events, and steers no agent",
    "WebhookRotate": "sends events, and steers no agent",
}
"""Bodies without fields for agents, and why. A new body is one of these, or declares what its authors need."""


def _with_parts(model: type[BaseModel], seen: set[type[BaseModel]]) -> set[type[BaseModel]]:
    if model not in seen:
        seen.add(model)
        for name, right in rights_of(model).items():
            if right.has_parts:
                for part in models_in(model.model_fields[name].annotation):
                    _with_parts(part, seen)
    return seen


@proves("authors.declared")
def test_every_field_of_a_document_that_steers_agents_says_what_its_author_needs(settings: Settings) -> None:
    bodies, grants = request_bodies(build_app(settings)), all_grants()
    assert set(_STEER_NO_AGENT) - {body.__name__ for body in bodies} <= {"AiWorkOrderV1"}, "named, and not there"
    steering = {body for body in bodies if body.__name__ not in _STEER_NO_AGENT}
    configs = {kind for known in grants.discover() if (kind := grants.config_type(known.name)) is not None}
    found: set[type[BaseModel]] = set()
    for model in (*steering, *_CONTAINED, *configs):
        _with_parts(model, found)
    assert {AgentSpec, OrchestrationConfig, PolicyDocument, *configs} <= found
    for model in found:
        for name, right in rights_of(model).items():
            where = f"{model.__name__}.{name}"
            assert right is not UNDECLARED, f"{where}: declare with `authored` what its author needs"
            # A part that is not looked into would give what it has to every author. Content is what agents read.
            inner = [*models_in(model.model_fields[name].annotation)]
            assert right.has_parts or right is MESSAGE or not inner, f"{where} has parts: PARTS"
    doubtful = {model.__name__ for model in found if DOCUMENT in rights_of(model).values()}
    named = {"OrchestrationConfigPut", "PolicyPut", "AgentRename", "AgentRollback", "RolloutStart"}
    assert doubtful == named, "name it in _CONTAINED"


def test_a_document_is_written_where_its_author_is_checked_and_nowhere_else() -> None:
    writers = {
        "create_agent": {"nova_workers/domain/agents/rules/service.py"},
        "replace_agent": {"nova_workers/domain/agents/rules/service.py"},
        "put_config": {"nova_workers/domain/orchestrations/rules/config/service.py"},
        "put_policy": {"nova_workers/domain/orders/rules/policies/registry.py"},
        "save_skill": {"nova_workers/domain/agents/rules/skill_authors.py"},
        "import_archive": {"api/routes/workspace/archive.py"},
    }
    found: dict[str, set[str]] = {name: set() for name in writers}
    for room in ("api", "nova_workers"):
        for path in (ROOT / room).rglob("*.py"):
            text = path.read_text("utf-8")
            if any(f"{name}(" in text for name in writers):
                for node in ast.walk(ast.parse(text)):
                    if isinstance(node, ast.Call) and (name := ast.unparse(node.func).rpartition(".")[2]) in writers:
                        found[name].add(path.relative_to(ROOT).as_posix())
    # A route of the same name, and an agent of the fleet's own, which no person writes.
    own = {"create_agent": {"api/routes/workspace/agents.py", "nova_workers/domain/upkeep/rules/rehearsal.py"}}
    assert {name: files - own.get(name, set()) for name, files in found.items()} == writers


# Every field that gives something, by every door


def _giving(model: type[BaseModel], at: str = "") -> Iterator[tuple[str, Right]]:
    """Yield the fields below a model that give something beyond the usual; ``*`` stands for a key."""
    for name, right in rights_of(model).items():
        path = f"{at}{name}"
        if right.scope is not None:
            yield path, right
        elif model is AgentSpec and name == "capabilities":
            for known in (grants := all_grants()).discover():
                config = grants.config_type(known.name)
                assert config is not None
                yield from _giving(config, f"{path}.{known.name}.config.")
        elif right.has_parts:
            annotation = model.model_fields[name].annotation
            step = ".*" if get_origin(annotation) in (dict, tuple, list) else ""
            for part in models_in(annotation):
                yield from _giving(part, f"{path}{step}.")


_STDIO: Json = {"type": "stdio", "command": "npx"}
_HTTP: Json = {"type": "http", "url": "https://tools.example.com/mcp"}
_SERVERS: dict[str, Json] = {
    "env": {**_STDIO, "env": {"TOKEN": "${secret:KEY}"}},
    "cwd": {**_STDIO, "cwd": "/srv"},
    "url": {**_HTTP, "url": "https://tools.example.com/${secret:KEY}"},
    "headers": {**_HTTP, "headers": {"X-Key": "Bearer ${secret:KEY}"}},
}
_REMOTE_AGENTS: dict[str, Json] = {
    "url": {"url": "https://x.example/${secret:KEY}"},
    "headers": {"url": "https://x.example/card", "headers": {"Authorization": "${secret:KEY}"}},
}
_AGENTS: dict[str, Json] = {
    "trust": {"trust": "unrestricted"},
    "directories": {"directories": ["/srv"]},
    "capabilities.secrets.config.names": {"capabilities": {"secrets": {"config": {"names": ["KEY"]}}}},
    **{
        f"capabilities.mcp.config.servers.*.{field}": {"capabilities": {"mcp": {"config": {"servers": {"x": server}}}}}
        for field, server in _SERVERS.items()
    },
    **{
        f"capabilities.a2a.config.agents.*.{field}": {"capabilities": {"a2a": {"config": {"agents": {"x": agent}}}}}
        for field, agent in _REMOTE_AGENTS.items()
    },
}
_EXPERT: Json = {"system_prompt": "Fix it."}
_CONFIGS: dict[str, Json] = {
    "engine.command_policy.whitelist": {"engine": {"command_policy": {"whitelist": ["git *"]}}},
    "experts.*.permission_mode": {"experts": {"x": {**_EXPERT, "permission_mode": "BYPASS"}}},
    **{f"plugins.*.{field}": {"plugins": {"x": server}} for field, server in _SERVERS.items()},
    **{
        f"experts.*.mcp_servers.*.{field}": {"experts": {"x": {**_EXPERT, "mcp_servers": {"x": server}}}}
        for field, server in _SERVERS.items()
    },
}


def _archive(*rows: tuple[str, Json]) -> str:
    lines = [("archive", {"format": 1, "next_task_id": 1}), *rows, ("end", {"open_runs": 0})]
    return "\n".join(json.dumps({"table": table, "row": row}) for table, row in lines)


async def _write(client: httpx2.AsyncClient, fields: Json) -> list[httpx2.Response]:
    """Write an agent by each door."""
    spec = {"name": "x", **fields}
    archives = (
        _archive(small_row("agents", id="y", spec=spec)),
        _archive(small_row("agents", id="y", spec=spec, deleted_at="2026-03-01T12:30:15+00:00")),
        # A failed run of an earlier version can be tried again, and keeps its version.
        _archive(small_row("agents", id="y", version=2), small_row("agent_versions", agent_id="y", spec=spec)),
    )
    return [
        await client.post("/v1/agents", json={"id": "x", **spec}),
        await client.put("/v1/agents/plain", json=spec),
        await client.patch("/v1/agents/plain", json=fields),
        *[
            await client.post("/v1/import", content=archive, headers={"content-type": MEDIA_TYPE})
            for archive in archives
        ],
    ]


def _refusal(answer: httpx2.Response) -> tuple[int, str | None, str]:
    body = answer.json()
    return answer.status_code, body.get("context", {}).get("needed"), (body.get("errors") or [{}])[0].get("field", "")


def _fits(field: str, pattern: str) -> bool:
    """Whether a refused field is one of a pattern, or lies below it."""
    words, steps = field.split("."), pattern.split(".")
    return len(words) >= len(steps) and all(step in ("*", word) for word, step in zip(words, steps, strict=False))


@proves("authors.checked", "ceilings.scope", "ceilings.secrets")
async def test_what_gives_more_than_the_usual_needs_its_scope_at_every_door(
    settings: Settings, serve: Serve, database: Database
) -> None:
    tools = settings.tools.model_copy(update={"mcp_commands": ("*",), "mcp_env": ("*",)})
    effects = settings.effects.model_copy(update={"embedding_provider": "off"})
    api = await serve(settings.model_copy(update={"tools": tools, "effects": effects}))
    agent_rights, config_rights = dict(_giving(AgentSpec)), dict(_giving(OrchestrationConfig))
    assert (_AGENTS.keys(), _CONFIGS.keys()) == (agent_rights.keys(), config_rights.keys()), "give an example of each"
    assert (await api.http.post("/v1/agents", json={"id": "plain", "name": "plain"})).status_code == 201
    lacking: dict[AuthorScope, httpx2.AsyncClient] = {}
    for scope in get_args(AuthorScope):
        key = await make_tenant(database, tuple(each for each in _ALL if each != scope), api.tenant.id)
        lacking[scope] = api.client(key.key)
    for field, fields in _AGENTS.items():
        scope = agent_rights[field].scope
        assert scope is not None
        for answer in await _write(lacking[scope], fields):
            status, needed, named = _refusal(answer)
            assert (status, needed) == (403, scope), answer.text
            assert _fits(named.removeprefix("agents.y.").removeprefix("agent_versions.y.1."), field), named
        for answer in (await _write(api.http, fields))[:3]:
            assert answer.is_success, answer.text
        assert (await api.http.put("/v1/agents/plain", json={"name": "plain"})).status_code == 200
        assert (await api.http.delete("/v1/agents/x")).status_code == 204
    assert await database.fetchval("SELECT count(*) FROM agents WHERE id = 'y'") == 0
    for field, document in _CONFIGS.items():
        scope = config_rights[field].scope
        assert scope is not None
        body = {"text": json.dumps(document)}
        status, needed, named = _refusal(await lacking[scope].put(CONFIG, json=body))
        assert (status, needed, _fits(named, field)) == (403, scope, True), (field, named)
        # With the scope it is written; kept as it is, and with other bounds, it needs none.
        assert (await api.http.put(CONFIG, json=body)).status_code == 200
        bounds = {**document, "engine": {**document.get("engine", {}), "max_agent_depth": 3}}
        for kept in (body, {"text": json.dumps(bounds)}):
            assert (await lacking[scope].put(CONFIG, json=kept)).status_code == 200
        # Not so if it is steered, or written once more from an earlier version.
        steered = {**bounds, "experts": {**document.get("experts", {}), "other": _EXPERT}}
        assert _refusal(await lacking[scope].put(CONFIG, json={"text": json.dumps(steered)}))[:2] == (403, scope)
        assert (await lacking[scope].put(CONFIG, json={"text": ""})).status_code == 200
        assert _refusal(await lacking[scope].put(CONFIG, json=body))[:2] == (403, scope)
    for client in lacking.values():
        await client.aclose()


@proves("authors.checked")
async def test_experts_of_a_tenant_whose_agents_have_a_right_are_written_with_it(api: Api, database: Database) -> None:
    plain = await make_tenant(database, ("runs", "agents"), api.tenant.id)
    prompts = (json.dumps({"experts": {"x": {"system_prompt": f"Fix it {at}."}}}) for at in range(9))
    async with api.client(plain.key) as limited:
        assert (await limited.put(CONFIG, json={"text": next(prompts)})).status_code == 200
        for rights, needed in (({"trust": "unrestricted"}, "trust"), ({"capabilities": {"secrets": {}}}, "secrets")):
            assert (await api.http.post("/v1/agents", json={"id": "clerk", "name": "c", **rights})).status_code == 201
            answer = await limited.put(CONFIG, json={"text": next(prompts)})
            assert _refusal(answer) == (403, needed, "experts.x.system_prompt")
            assert "of the agent 'clerk'" in answer.json()["detail"]
            assert (await api.http.delete("/v1/agents/clerk")).status_code == 204
        assert (await limited.put(CONFIG, json={"text": next(prompts)})).status_code == 200


@proves("ceilings.write")
async def test_a_configuration_of_orchestrations_obeys_the_ceilings_of_its_tenant(api: Api) -> None:
    made = (await api.http.post("/v1/tenants", json={"name": "Acme"})).json()
    async with api.client(made["key"]["key"]) as own:
        for text, field in (
            ("providers: {mine: {engine: scripted}}", "providers.mine.engine"),
            ("experts: {x: {system_prompt: y, cwd: /etc}}", "experts.x.cwd"),
        ):
            answer = await own.put(CONFIG, json={"text": text})
            assert _refusal(answer) == (403, None, field)
            assert "nova tenants ceilings" in answer.json()["detail"]
        assert (await own.put(CONFIG, json={"text": "experts: {x: {system_prompt: y}}"})).status_code == 200


# The operator's side: what a tenant may give its agents at most

_WIDE: Json = {"trust": "unrestricted", "directories": ["/"]}


@proves("ceilings.own")
async def test_a_tenant_changes_its_ceilings_by_no_door(api: Api, database: Database, openapi: Json) -> None:
    made = (await api.http.post("/v1/tenants", json={"name": "Acme", "ceilings": {"trust": "sandbox"}})).json()
    key = await make_tenant(database, _ALL, made["id"])
    before = await database.fetchval("SELECT to_jsonb(t) FROM tenants t WHERE id = :id", id=made["id"])
    tried = 0
    async with api.client(key.key) as own:
        for path, operations in openapi["paths"].items():
            for method in operations.keys() & {"post", "put", "patch", "delete"}:
                if "tenant" not in path and path not in ("/v1/import", "/v1/keys"):
                    continue
                tried += 1
                at = path.replace("{tenant_id}", made["id"])
                for body in ({"ceilings": _WIDE}, {"ceilings": None}, {"name": "x", "ceilings": _WIDE}, _WIDE):
                    answer = await own.request(method.upper(), at, json=body)
                    assert answer.status_code in (403, 415, 422), (method, path, answer.text)
        assert tried >= 6
        asked = [{"name": "more", "scopes": ["operator"]}, {"name": "more", "scopes": list(_ALL), "ceilings": None}]
        assert [(await own.post("/v1/keys", json=body)).status_code for body in asked] in ([403, 422], [403, 403])
        archive = _archive(("tenants", {"id": made["id"], "ceilings": _WIDE}))
        answer = await own.post("/v1/import", content=archive, headers={"content-type": MEDIA_TYPE})
        assert answer.status_code == 422, answer.text
    assert await database.fetchval("SELECT to_jsonb(t) FROM tenants t WHERE id = :id", id=made["id"]) == before
