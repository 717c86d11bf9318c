"""The registry of policies: built-in documents, and versioned ones of tenants, which take precedence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import structlog

from nova_workers.base.errors import InvalidInput, NotFound, missing
from nova_workers.base.json_schemas import JsonSchema
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.http.order_policies import PolicyInfo, PolicyView
from nova_workers.contracts.orders import PolicyDocument
from nova_workers.domain.agents.rules.ceilings import CeilingRules
from nova_workers.domain.orders.rules.policies.builtin_policies import builtin_policies
from nova_workers.domain.orders.rules.policies.parsing import parse_policy
from nova_workers.domain.orders.sql import policies as ledger
from nova_workers.domain.tenants.sql.settings import get_ceilings
from nova_workers.ledger.database import Connection, Database

_log = structlog.get_logger(__name__)

_MOST_LOADED: Final = 256


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A policy with the validator of its inputs, if it has a schema of them."""

    document: PolicyDocument
    inputs: JsonSchema | None

    @classmethod
    def of(cls, document: PolicyDocument) -> LoadedPolicy:
        """Prepare a document.

        Raises:
            InvalidSchema: A schema of it is not accepted: it was stored by a release that accepted more.
        """
        # Compiled to refuse an order before it is paid for.
        JsonSchema(document.payload_schema())
        schema = document.inputs_schema
        return cls(document, None if schema is None else JsonSchema(schema))


class Policies:
    """Reads and writes policies of all tenants."""

    def __init__(self, database: Database, rules: CeilingRules) -> None:
        self._database = database
        self._rules = rules
        # Versions never change, so that what was loaded stays valid. The time tells a version from one of the same
        # number that was deleted.
        self._loaded: dict[tuple[str, str, int, datetime | None], LoadedPolicy] = {}

    async def put(self, tenant_id: str, policy_id: str, document: JsonObject) -> PolicyView:
        """Store a policy as its newest version. The same version with the same document changes nothing.

        Raises:
            InvalidInput: The document has errors; ``fields['errors']`` names each.
            Forbidden: It names an engine that the tenant may not use.
            Conflict: The version exists with another document.
        """
        parsed = parse_policy(document)
        if parsed.id != policy_id:
            raise InvalidInput(
                f"document.id: the document is the policy {parsed.id!r}, and the request is for {policy_id!r}.",
                field="document.id",
            )
        async with self._database.transaction() as connection:
            ceilings = await get_ceilings(connection, tenant_id)
            self._rules.check(tenant_id, parsed, ceilings, at="document.")
            row = await ledger.put_policy(connection, tenant_id, policy_id, parsed.version, parsed.to_wire())
        _log.info("work_orders.policy_stored", tenant_id=tenant_id, policy_id=policy_id, version=parsed.version)
        return _view_of_row(row)

    async def delete(self, tenant_id: str, policy_id: str) -> None:
        """Delete a tenant's policy with its versions. A built-in one applies again; open orders keep their version.

        Raises:
            NotFound: The tenant has no policy with this id.
        """
        async with self._database.connection() as connection:
            deleted = await ledger.delete_policy(connection, tenant_id, policy_id)
        if not deleted and policy_id in builtin_policies():
            raise NotFound(
                f"The tenant has no policy {policy_id!r} of its own, and built-in ones cannot be deleted.",
                kind="order_policy",
                id=policy_id,
            )
        if not deleted:
            raise _unknown(policy_id)
        _log.info("work_orders.policy_deleted", tenant_id=tenant_id, policy_id=policy_id)

    async def get(self, tenant_id: str, policy_id: str, *, version: str | None = None) -> PolicyView:
        """Return a version of a policy; without `version` the one that applies.

        Raises:
            NotFound: Neither the tenant nor the fleet has it.
        """
        async with self._database.connection() as connection:
            row = await ledger.get_policy(connection, tenant_id, policy_id, version=version)
        if row is not None:
            return _view_of_row(row)
        builtin = builtin_policies().get(policy_id)
        if builtin is None or version not in {None, builtin.version}:
            raise _unknown(policy_id, version)
        return _view_of_builtin(builtin)

    async def list(self, tenant_id: str) -> list[PolicyInfo]:
        """Return the policies that apply for a tenant, by id."""
        async with self._database.connection() as connection:
            rows = await ledger.list_policies(connection, tenant_id)
        found: dict[str, PolicyInfo] = {each.id: _view_of_builtin(each) for each in builtin_policies().values()}
        found |= {row.policy_id: _view_of_row(row) for row in rows}
        return [PolicyInfo(**found[policy_id].model_dump()) for policy_id in sorted(found)]

    async def versions(self, tenant_id: str, policy_id: str, *, before: int | None, limit: int) -> list[PolicyInfo]:
        """Return a tenant's versions of a policy, newest first. Of a built-in policy it may have none.

        Raises:
            NotFound: Neither the tenant nor the fleet has it.
        """
        async with self._database.connection() as connection:
            rows = await ledger.list_policy_versions(connection, tenant_id, policy_id, before=before, limit=limit)
        if not rows and before is None and policy_id not in builtin_policies():
            raise _unknown(policy_id)
        return [PolicyInfo(**_view_of_row(row).model_dump()) for row in rows]

    async def load(
        self, connection: Connection, tenant_id: str, policy_id: str, *, version: str | None = None
    ) -> LoadedPolicy | None:
        """Return a policy for execution: the one that applies, or of a version; None if there is none.

        Raises:
            InvalidSchema: A schema of it is not accepted.
        """
        row = await ledger.get_policy(connection, tenant_id, policy_id, version=version)
        if row is not None:
            return self._remember((tenant_id, policy_id, row.number, row.created_at), row.document)
        builtin = builtin_policies().get(policy_id)
        if builtin is None or version not in {None, builtin.version}:
            return None
        return self._remember(("", policy_id, 0, None), builtin.to_wire())

    def _remember(self, key: tuple[str, str, int, datetime | None], document: JsonObject) -> LoadedPolicy:
        found = self._loaded.get(key)
        if found is None:
            while len(self._loaded) >= _MOST_LOADED:
                del self._loaded[next(iter(self._loaded))]
            found = self._loaded[key] = LoadedPolicy.of(PolicyDocument.from_wire(document))
        return found


def _unknown(policy_id: str, version: str | None = None) -> NotFound:
    hint = "`nova orders policies list` shows all."
    if version is None:
        return missing("order_policy", policy_id, hint)
    text = f"There is no policy {policy_id!r} with the version {version!r}. {hint}"
    return NotFound(text, kind="order_policy", id=policy_id, version=version)


def _view_of_row(row: ledger.PolicyRow) -> PolicyView:
    return PolicyView(
        id=row.policy_id,
        version=row.version,
        description=str(row.document.get("description", "")),
        built_in=False,
        number=row.number,
        created_at=row.created_at,
        document=row.document,
    )


def _view_of_builtin(policy: PolicyDocument) -> PolicyView:
    return PolicyView(
        id=policy.id,
        version=policy.version,
        description=policy.description,
        built_in=True,
        number=0,
        created_at=None,
        document=policy.to_wire(),
    )
