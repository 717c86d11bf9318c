"""The check of `nova doctor` for documents that steer agents: what of them needs a right, and which keys lack it.

A document is checked when it is written. One of a release that checked less, or of a key that had more rights, works as
it did, and a key without the right cannot change what it steers.
"""

from collections.abc import Iterable

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.errors import InvalidInput
from nova_workers.cli.operations.findings import Finding
from nova_workers.client.client import NovaClient
from nova_workers.client.paging import iterate
from nova_workers.contracts.authors.rights import AuthorScope
from nova_workers.contracts.http.keys import KeyView
from nova_workers.domain.agents.rules.authors import Holdings, holdings_of
from nova_workers.domain.agents.rules.entries import GrantForms
from nova_workers.domain.capabilities.rules.discovery import default_registry
from nova_workers.domain.orchestrations.rules.config.parsing import parse_config
from nova_workers.domain.orchestrations.rules.models.registry import known_models
from nova_workers.ledger.database import PostgresDatabase

_CONFIGURATION = "the configuration of orchestrations"
_SCOPES: tuple[AuthorScope, ...] = ("trust", "secrets")
_PAGE = 100
_MOST_NAMED = 5
_NO_DATABASE = "postgresql://localhost/none"
"""Capabilities are described, and none is used."""


async def check_authors(client: NovaClient) -> list[Finding]:
    """List what documents hold that authors need a scope for, and the keys that may write agents and lack it.

    Args:
        client: With the scopes `agents` and `keys`.
    """
    keys = [key async for key in iterate(client.keys.list, limit=_PAGE) if key.revoked_at is None]
    grants = default_registry(PostgresDatabase(_NO_DATABASE, pool_size=1), Settings(), SystemClock())
    documents = await _documents(client, grants)
    return [found for scope in _SCOPES if (found := _finding(scope, documents, _lacking(keys, scope))) is not None]


async def _documents(client: NovaClient, grants: GrantForms) -> list[tuple[str, Holdings]]:
    agents = iterate(client.agents.list, limit=_PAGE)
    documents = [(f"agent {agent.id}", holdings_of(agent.spec, grants)) async for agent in agents]
    stored = await client.orchestration_config.get()
    try:
        config = parse_config(stored.text, stored.models_text, known=known_models({}))
    except InvalidInput:
        # It may name models that only the server knows.
        return documents
    return [*documents, (_CONFIGURATION, holdings_of(config))]


def _lacking(keys: Iterable[KeyView], scope: AuthorScope) -> list[str]:
    return sorted(key.name for key in keys if "agents" in key.scopes and scope not in key.scopes)


def _finding(scope: AuthorScope, documents: list[tuple[str, Holdings]], lacking: list[str]) -> Finding | None:
    held = [f"{name} ({_some(things)})" for name, each in documents if (things := sorted({*each.get(scope, ())}))]
    if not held or not lacking:
        return None
    detail = (
        f"needed to change {_some(held)}; keys that may write agents and lack it: {_some(lacking)}. What they wrote "
        "before the scope was needed stays in force: review it (`nova audit list`)"
    )
    return Finding(f"scope {scope}", "ok", detail)


def _some(words: list[str]) -> str:
    shown = ", ".join(words[:_MOST_NAMED])
    return shown if len(words) <= _MOST_NAMED else f"{shown} and {len(words) - _MOST_NAMED} more"
