"""The HTTP contract of the audit log, and the chain over its records, which any reader can check."""

import json
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final

from nova_workers.base.vocabulary import ActorKind
from nova_workers.contracts.bodies import View

NO_HASH: Final = 64 * "0"
"""The hash to which the first record of a chain is chained."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class AuditEventView(View):
    """What a key, an agent or a command did."""

    id: str
    tenant_id: str
    at: datetime
    actor_kind: ActorKind
    actor_id: str
    """The id of the key or the agent, or the name of the command."""
    actor_name: str | None
    """The key's name at that time; of an agent or a command its id."""
    address: str | None
    """The address of the client whose request it was, or the name of a command's machine."""
    trace_id: str | None
    """Of the request, as in the fleet's logs and traces."""
    run_id: str | None
    """The run whose agent did it."""
    action: str
    """Kind of the thing and a verb, such as `agent.updated`."""
    target_kind: str
    target_id: str
    fields: list[str]
    """Names of what an update changed, such as `spec.trust`; never values."""
    arguments_hash: str | None = None
    """SHA-256, in hex, of what was decided, given or asked for; null for changes of what people and agents manage."""
    times: int = 1
    """How often, where equal ones are one record: requests that were refused."""
    seq: int | None = None
    """Its number in the tenant's chain; null until it is sealed, some seconds after its transaction was committed."""
    hash: str | None = None
    """SHA-256, in hex, over the hash of the record before and this one."""

    def chained(self, before: str) -> str:
        """Return the hash that this record has after a record with the hash `before`.

        It is the SHA-256 of the 32 bytes of that hash, and of a JSON array of what the record holds, in the form of
        Postgres' own text of JSON: separators with a space, and all letters as they are.
        """
        holds = [
            *(self.seq, self.id, self.tenant_id, (self.at - _EPOCH) // timedelta(microseconds=1)),
            *(self.actor_kind, self.actor_id, self.actor_name, self.address, self.trace_id, self.run_id),
            *(self.action, self.target_kind, self.target_id, self.fields, self.arguments_hash, self.times),
        ]
        return sha256(bytes.fromhex(before) + json.dumps(holds, ensure_ascii=False).encode()).hexdigest()


class AuditChainView(View):
    """The chain over a tenant's records: where it begins and ends."""

    seq: int
    """Number of the last record that was sealed; 0 for none."""
    hash: str
    """The hash of that record. One that is kept elsewhere proves that no record up to it was changed."""
    sealed_at: datetime | None
    anchor_seq: int
    """Number of the last record that retention deleted; 0 for none."""
    anchor_hash: str
    """Of that record, to which the first one that is left is chained."""
    unsealed: int
    """Records that are not in the chain yet."""
