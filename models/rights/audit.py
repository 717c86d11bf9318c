"""The audit log: a record of each change of a key, an agent or a command, written by Postgres in its transaction.

Sessions have the setting ``nova.actor`` (`nova_workers/ledger/auditing.py`). Where it is empty, as for the fleet's own
bookkeeping, nothing is recorded. A record has names of changed columns, and never a value.

Roles of the fleet's processes only read records; functions add, seal and delete them with the rights of the log's owner
(`models/rights/audit_chain.py`).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as attribute
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Column, Connection, Index, LargeBinary, MetaData, event, text
from sqlmodel import Field

from ..base import Table, metadata
from ..columns import big, count, id_ref, pk, string, time, words
from .audit_chain import chain_functions, make_audit_role, own_audit, restrict_audit


class AuditEvent(Table, table=True):
    """What a key, an agent or a command did: who, what, which thing, from where. Sealed once, and never changed."""

    __tablename__ = "audit_events"
    __table_args__ = (
        Index(None, "tenant_id", "id"),
        Index("ix_audit_events__target", "tenant_id", "target_kind", "target_id", "id"),
        Index("ix_audit_events__actor", "tenant_id", "actor_id", "id"),
        Index(None, "at"),
        Index("ix_audit_events__chain", "tenant_id", "seq"),
        Index("ix_audit_events__unsealed", "id", postgresql_where=text("seq IS NULL")),
    )

    id: str = pk()
    tenant_id: str = id_ref()
    at: datetime = time(now=True)
    actor_kind: str = string(comment="key, person, agent or command")
    actor_id: str = id_ref()
    address: str | None = string(null=True, comment="Of the client whose request it was; of a command the machine")
    trace_id: str | None = string(null=True, comment="Of the request, as in logs and traces")
    run_id: str | None = id_ref(null=True, comment="The run whose agent did it")
    action: str = string(comment="Kind of the thing and a verb, such as agent.updated")
    target_kind: str = string()
    target_id: str = string()
    fields: list[str] = words(comment="Names of columns that an update changed; never their values")
    actor_name: str | None = string(null=True, comment="Of the key at that time; of an agent or a command its id")
    arguments_hash: str | None = string(null=True, comment="SHA-256 of what was decided, given or asked for, in hex")
    times: int = count(default=1, comment="How often, where equal ones are one record")
    seq: int | None = big(null=True, default=None, comment="Number in the tenant's chain; null until it is sealed")
    hash: bytes | None = Field(
        default=None, sa_column=Column(LargeBinary, nullable=True, comment="Over this record and the hash before")
    )


@dataclass(frozen=True, slots=True)
class AuditRule:
    """What is recorded of a table.

    Attributes:
        kind: Of the thing that a row is.
        id: Columns of its id; several are joined with slashes.
        marks: Columns whose first value is an event of its own, each with its verb; the first that applies is recorded.
        bookkeeping: Columns whose change alone is not recorded.
        documents: JSON columns of which the changed fields are named.
        unless: Values of columns by which rows are recognised that are not recorded.
        operations: SQL: which statements fire the trigger.
        tenant: The column with the tenant.
    """

    kind: str
    id: Sequence[str]
    marks: Sequence[tuple[str, str]] = ()
    bookkeeping: Sequence[str] = ()
    documents: Sequence[str] = ()
    unless: Mapping[str, str] = attribute(default_factory=dict[str, str])
    operations: str = "INSERT OR UPDATE OR DELETE"
    tenant: str = "tenant_id"

    def argument(self) -> str:
        """Return the argument of the trigger's function."""
        names = ("kind", "id", "marks", "bookkeeping", "documents", "unless", "tenant")
        return json.dumps({name: getattr(self, name) for name in names}, sort_keys=True)


_CHANGED_AT = ("updated_at",)

AUDITED: Final[Mapping[str, AuditRule]] = {
    "agents": AuditRule(
        "agent",
        ("id",),
        marks=(("renamed_to", "renamed"), ("deleted_at", "deleted")),
        bookkeeping=("version", "max_running", "max_cost_usd_per_day", "needs", "code", *_CHANGED_AT),
        documents=("spec",),
    ),
    "api_keys": AuditRule("key", ("id",), marks=(("revoked_at", "revoked"), ("replaced_by", "rotated"))),
    "channel_pairings": AuditRule(
        "pairing", ("id",), marks=(("paired_at", "confirmed"),), bookkeeping=("code_hash", "code_expires_at", "name")
    ),
    # Each change of its examples raises its version.
    "datasets": AuditRule("dataset", ("name",), bookkeeping=_CHANGED_AT),
    "evaluations": AuditRule(
        "evaluation", ("id",), bookkeeping=("agent_id", "result", "finished_at"), operations="INSERT OR DELETE"
    ),
    "samplings": AuditRule(
        "sampling",
        ("agent_id",),
        bookkeeping=(
            *("agent_id", "looked_until", "looked_id", "reference_from", "windows", "drift"),
            *_CHANGED_AT,
        ),
    ),
    # The row itself says who gave it and when.
    "feedback": AuditRule("feedback", ("id",), bookkeeping=("agent_id", *_CHANGED_AT), operations="UPDATE OR DELETE"),
    "memories": AuditRule("memory", ("id",)),
    "notes": AuditRule("note", ("id",), bookkeeping=_CHANGED_AT),
    "orchestration_configs": AuditRule("orchestration_config", ("version",)),
    "orchestrations": AuditRule("orchestration", ("id",), operations="INSERT"),
    "push_configs": AuditRule("push_config", ("run_id", "name")),
    "rollouts": AuditRule(
        "rollout",
        ("id",),
        marks=(("breach", "breached"), ("promoted_at", "promoted"), ("ended_at", "stopped")),
        bookkeeping=("looks", "share", "step_ends_at", "agent_id", *_CHANGED_AT),
    ),
    # Each claim and each end of a run updates its thread and itself: of these columns only.
    "runs": AuditRule(
        "run",
        ("id",),
        marks=(("cancel_requested_at", "canceled"),),
        operations="UPDATE OF cancel_requested_at OR DELETE",
    ),
    "secrets": AuditRule("secret", ("name",), bookkeeping=("updated_by", *_CHANGED_AT)),
    "sent_files": AuditRule("file", ("id",), operations="DELETE"),
    # A change of a file beside SKILL.md changes `updated_at` only.
    "skills": AuditRule("skill", ("name",)),
    "switches": AuditRule("pause", ("scope", "target"), unless={"scope": "rename"}),
    "tasks": AuditRule(
        "task",
        ("id",),
        bookkeeping=("work_at", "working_run_id", "worked_revision", "idle_invocations", *_CHANGED_AT),
    ),
    "tenants": AuditRule(
        "tenant",
        ("id",),
        marks=(("ending_at", "ended"),),
        bookkeeping=("next_task_id",),
        documents=("ceilings",),
        tenant="id",
    ),
    "thread_states": AuditRule("thread_state", ("thread_id",), bookkeeping=("version", *_CHANGED_AT)),
    "threads": AuditRule(
        "thread",
        ("id",),
        marks=(("deleted_at", "deleted"),),
        bookkeeping=_CHANGED_AT,
        operations="UPDATE OF title, label, meta, pinned, archived, deleted_at",
    ),
    "triggers": AuditRule(
        "trigger",
        ("id",),
        marks=(("deleted_at", "deleted"),),
        bookkeeping=("failures", "gate_seen", "next_slot_at", "next_fire_at", *_CHANGED_AT),
    ),
    "webhooks": AuditRule("webhook", ("id",), bookkeeping=("failures", "failing_since", "rests_until", *_CHANGED_AT)),
    "work_order_policies": AuditRule("order_policy", ("policy_id", "number")),
    "work_order_secrets": AuditRule("order_secret", ("id",)),
}
"""The tables of things that people and agents manage. A change here needs `audit` in a migration; a table that is not
here is named with its reason in tests/integration/test_audit.py."""

_NEW_ID = (
    "'aud_' || lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000000)::bigint), 14, '0')"
    " || left(replace(gen_random_uuid()::text, '-', ''), 12)"
)
"""Begins with its time, like other ids."""

RECORD_AUDIT = f"""
CREATE OR REPLACE FUNCTION record_audit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
DECLARE
    rule jsonb := TG_ARGV[0];
    actor jsonb := current_setting('nova.actor');
    before jsonb := CASE WHEN TG_OP = 'INSERT' THEN '{{}}' ELSE to_jsonb(OLD) END;
    after jsonb := CASE WHEN TG_OP = 'DELETE' THEN '{{}}' ELSE to_jsonb(NEW) END;
    thing jsonb := CASE WHEN TG_OP = 'DELETE' THEN before ELSE after END;
    verb text;
    changed text[] := '{{}}';
BEGIN
    IF rule -> 'unless' <> '{{}}' AND thing @> (rule -> 'unless') THEN
        RETURN NULL;
    END IF;
    SELECT m.mark ->> 1 INTO verb FROM jsonb_array_elements(rule -> 'marks') WITH ORDINALITY AS m (mark, place)
     WHERE after ->> (m.mark ->> 0) IS NOT NULL AND before ->> (m.mark ->> 0) IS NULL
     ORDER BY m.place
     LIMIT 1;
    IF verb IS NULL AND TG_OP = 'UPDATE' THEN
        SELECT array_agg(n.name ORDER BY n.name) INTO changed
          FROM jsonb_each(after) a
         CROSS JOIN LATERAL (
            SELECT a.key || COALESCE('.' || part.key, '') AS name
              FROM (SELECT rule -> 'documents' ? a.key AND jsonb_typeof(a.value) = 'object'
                       AND jsonb_typeof(before -> a.key) = 'object' AS in_parts) d
              LEFT JOIN LATERAL jsonb_each(CASE WHEN in_parts THEN (before -> a.key) || a.value ELSE '{{}}' END) part
                ON true
             WHERE NOT in_parts
                OR NULLIF(a.value -> part.key, 'null') IS DISTINCT FROM NULLIF(before -> a.key -> part.key, 'null')
         ) n
         WHERE a.value IS DISTINCT FROM before -> a.key AND NOT rule -> 'bookkeeping' ? a.key;
        IF changed IS NULL THEN
            RETURN NULL;
        END IF;
    END IF;
    verb := COALESCE(verb, CASE TG_OP WHEN 'INSERT' THEN 'created' WHEN 'DELETE' THEN 'deleted' ELSE 'updated' END);
    INSERT INTO audit_events (id, tenant_id, actor_kind, actor_id, actor_name, address, trace_id, run_id,
                              action, target_kind, target_id, fields)
    VALUES ({_NEW_ID},
            COALESCE(NULLIF(thing ->> (rule ->> 'tenant'), ''), actor ->> 'tenant_id'),
            actor ->> 'kind', actor ->> 'id', actor ->> 'name', actor ->> 'address', actor ->> 'trace_id',
            actor ->> 'run_id',
            (rule ->> 'kind') || '.' || verb, rule ->> 'kind',
            (SELECT string_agg(thing ->> i.name, '/' ORDER BY i.place)
               FROM jsonb_array_elements_text(rule -> 'id') WITH ORDINALITY AS i (name, place)),
            changed);
    RETURN NULL;
END
$$
"""
"""Adds one record for a row that a statement changed. Of a document, a
field that is null is equal to one that is left out: releases differ in which of them they store.

A pause of the fleet has no tenant: its record is the actor's."""

_RECORD_ACT = f"""
CREATE OR REPLACE FUNCTION record_act(
    done text, kind text, target text, arguments text, of_tenant text DEFAULT NULL, repeated int DEFAULT 1
) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
    INSERT INTO audit_events (id, tenant_id, actor_kind, actor_id, actor_name, address, trace_id, run_id,
                              action, target_kind, target_id, arguments_hash, times)
    SELECT {_NEW_ID}, COALESCE(of_tenant, actor ->> 'tenant_id'), actor ->> 'kind', actor ->> 'id', actor ->> 'name',
           actor ->> 'address', actor ->> 'trace_id', actor ->> 'run_id', done, kind, target, arguments, repeated
      FROM (SELECT NULLIF(current_setting('nova.actor', true), '')::jsonb) AS of_session (actor)
     WHERE actor IS NOT NULL
$$
"""
"""Records what an actor did that changes no audited row, in the transaction of the caller: an export, a sign-in, a
refused request.

The record is the actor's tenant's, unless another one is given."""

_RECORD_ANSWER = """
CREATE OR REPLACE FUNCTION record_answer() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
BEGIN
    PERFORM record_act(
        CASE WHEN NEW.kind = 'user' THEN 'question.answered'
             WHEN (NEW.answer ->> 'approve')::boolean THEN 'approval.granted'
             ELSE 'approval.refused' END,
        'run', NEW.run_id || '/' || NEW.id,
        encode(sha256(convert_to(
            jsonb_build_object('request', NEW.request, 'answer', NEW.answer)::text, 'UTF8')), 'hex'));
    RETURN NULL;
END
$$
"""
"""Records who answered a question or decided on a tool call. The hash is over both, so it shows which call it was."""

_DELIVER_FUNCTION = """
CREATE OR REPLACE FUNCTION deliver_audit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
DECLARE
    digits text := '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
    made_ms bigint := extract(epoch FROM now()) * 1000;
    before int := COALESCE(NULLIF(current_setting('nova.audit_records', true), ''), '0');
BEGIN
    IF NOT EXISTS (SELECT FROM webhooks w
                    WHERE w.tenant_id = NEW.tenant_id AND w.enabled AND 'audit_recorded' = ANY (w.kinds)) THEN
        RETURN NULL;
    END IF;
    PERFORM set_config('nova.audit_records', (before + 1)::text, true);
    INSERT INTO deliveries (id, tenant_id, kind, target, payload, webhook_id)
    SELECT 'dlv_' || (SELECT string_agg(substr(digits, (made_ms >> 5 * at & 31)::int + 1, 1), '' ORDER BY at DESC)
                        FROM generate_series(0, 9) AS at)
                  || upper(lpad(to_hex(before / 100), 4, '0') || left(md5(w.id || '/' || pg_current_xact_id()), 12)),
           w.tenant_id, 'audit_recorded', w.id, jsonb_build_object('ids', jsonb_build_array(NEW.id)), w.id
      FROM webhooks w
     WHERE w.tenant_id = NEW.tenant_id AND w.enabled AND 'audit_recorded' = ANY (w.kinds)
        ON CONFLICT (id) DO UPDATE
       SET payload = jsonb_build_object('ids', (deliveries.payload -> 'ids') || (EXCLUDED.payload -> 'ids'));
    RETURN NULL;
END
$$
"""
"""Puts a record into the outbox for each webhook that subscribes: one delivery for up to 100 records of a transaction.

The id of a delivery is a ULID whose time is the transaction's. The rest is made of the count of its records, the
webhook and the transaction, so that later records find it. It has ids only: more keys may read deliveries than the log.

It causes no further record: deliveries are not audited, and the sender has no actor."""

_DELIVER_TRIGGER = (
    "CREATE OR REPLACE TRIGGER deliver AFTER INSERT ON audit_events FOR EACH ROW EXECUTE FUNCTION deliver_audit()"
)


def deliver_audit() -> list[str]:
    """Return the statements that deliver records to webhooks. They may be repeated."""
    return [_DELIVER_FUNCTION, _DELIVER_TRIGGER]


def record_acts() -> list[str]:
    """Return the statements that make the functions for what changes no audited row. They may be repeated."""
    return [_RECORD_ACT, _RECORD_ANSWER]


def audit_answers() -> str:
    """Return the statement that makes the trigger of answers. It may be repeated."""
    return (
        "CREATE OR REPLACE TRIGGER audit AFTER UPDATE OF answer ON run_waits FOR EACH ROW "
        "WHEN (NEW.status = 'resolved' AND OLD.status = 'open' AND NEW.kind IN ('user', 'approval') "
        "AND current_setting('nova.actor', true) <> '') EXECUTE FUNCTION record_answer()"
    )


def audit(tables: Iterable[str]) -> list[str]:
    """Return the statements that make the triggers of audited tables. They may be repeated."""
    return [
        f"CREATE OR REPLACE TRIGGER audit AFTER {rule.operations} ON {table} FOR EACH ROW "
        # Before the function is called, so that the fleet's own statements do not pay for it.
        "WHEN (current_setting('nova.actor', true) <> '') "
        f"EXECUTE FUNCTION record_audit('{rule.argument()}')"
        for table, rule in AUDITED.items()
        if table in tables
    ]


@event.listens_for(metadata, "after_create")
def _audit_created(_: MetaData, connection: Connection, *, tables: Sequence[Any], **__: object) -> None:
    """Do for tables made from the metadata what the migrations did."""
    made = {table.name for table in tables}
    # A colon in a rule is no parameter.
    functions = (RECORD_AUDIT, *record_acts(), *deliver_audit(), *chain_functions())
    rights = (*restrict_audit("audit_events"), *restrict_audit("audit_chains"), make_audit_role(), own_audit())
    for statement in (*functions, *audit(made), audit_answers(), *rights):
        connection.exec_driver_sql(statement)
