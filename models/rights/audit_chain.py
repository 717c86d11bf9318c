"""The chain over the records of the audit log, and the role that owns both.

A record is sealed after its transaction was committed, by a tick (`nova_workers/domain/audit/rules.py`): it gets the
next number of its tenant's chain, and a hash over the hash of the record before and what the record holds. So a record
that was committed late is later in the chain, whatever its id, and none is passed over. A record that is changed, taken
away or put between others no longer fits (`nova_workers/contracts/http/overview/audit.py`).

Three functions change what is stored, with the rights of the role `nova_audit`, which owns the tables where the user of
the migration may make roles: `seal_audit`, `delete_audit` and those that add records. The processes' roles only read.
"""

from datetime import datetime
from typing import Any, Final

from sqlalchemy import Column, LargeBinary, text
from sqlmodel import Field

from ..base import Table
from ..columns import big, pk, time
from .row_security import FLEET_ROLE, TENANT_ROLE

AUDIT_ROLE: Final = "nova_audit"
"""Owns the audit log; no process works in it."""

_NO_HASH = "'\\x" + 64 * "0" + "'::bytea"


def _hash(comment: str) -> Any:
    return Field(sa_column=Column(LargeBinary, nullable=False, server_default=text(_NO_HASH), comment=comment))


class AuditChain(Table, table=True):
    """The chain over a tenant's records: its head, and its anchor where older records were deleted."""

    __tablename__ = "audit_chains"

    tenant_id: str = pk()
    seq: int = big(comment="Number of the last record that was sealed")
    hash: bytes = _hash("Of that record")
    sealed_at: datetime = time(now=True)
    anchor_seq: int = big(comment="Number of the last record that retention deleted; 0 for none")
    anchor_hash: bytes = _hash("Of that record, to which the first one that is left is chained")


_SEAL = """
CREATE OR REPLACE FUNCTION seal_audit(most int)
RETURNS TABLE (of_tenant text, last_seq bigint, last_hash bytea, at timestamptz, records int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
DECLARE
    ids text[];
    found record;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('nova audit chains', 0)) THEN
        RETURN;
    END IF;
    at := clock_timestamp();
    FOR of_tenant, ids IN
        SELECT u.tenant_id, array_agg(u.id)
          FROM (SELECT e.tenant_id, e.id FROM audit_events e WHERE e.seq IS NULL ORDER BY e.id LIMIT most) u
         GROUP BY u.tenant_id
    LOOP
        INSERT INTO audit_chains (tenant_id) VALUES (of_tenant) ON CONFLICT DO NOTHING;
        SELECT c.seq, c.hash INTO last_seq, last_hash FROM audit_chains c WHERE c.tenant_id = of_tenant;
        records := cardinality(ids);
        FOR found IN SELECT * FROM audit_events e WHERE e.id = ANY (ids) ORDER BY e.id LOOP
            last_seq := last_seq + 1;
            last_hash := sha256(last_hash || convert_to(jsonb_build_array(
                last_seq, found.id, found.tenant_id, (extract(epoch FROM found.at) * 1000000)::bigint,
                found.actor_kind, found.actor_id, found.actor_name, found.address, found.trace_id, found.run_id,
                found.action, found.target_kind, found.target_id, to_jsonb(found.fields), found.arguments_hash,
                found.times
            )::text, 'UTF8'));
            UPDATE audit_events e SET seq = last_seq, hash = last_hash WHERE e.id = found.id;
        END LOOP;
        UPDATE audit_chains c SET seq = last_seq, hash = last_hash, sealed_at = at WHERE c.tenant_id = of_tenant;
        RETURN NEXT;
    END LOOP;
END
$$
"""
"""Seals at most so many records, and returns the new heads. One session seals at a time: another one returns at once.

What a record holds is hashed as the text of a JSON array, which other programs can make: see
`AuditEventView.chained`."""

_DELETE = """
CREATE OR REPLACE FUNCTION delete_audit(of_tenant text, older_than_days int, most int) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
DECLARE
    young timestamptz := now() - make_interval(days => older_than_days);
    gone int := 0;
    batch int;
    chain record;
    last record;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('nova audit chains', 0));
    IF of_tenant IS NOT NULL THEN
        IF NOT EXISTS (SELECT FROM tenants t WHERE t.id = of_tenant AND t.ending_at IS NOT NULL) THEN
            RAISE EXCEPTION 'The tenant % was not ended.', of_tenant USING ERRCODE = 'insufficient_privilege';
        END IF;
        DELETE FROM audit_events
         WHERE id = ANY (ARRAY(SELECT e.id FROM audit_events e WHERE e.tenant_id = of_tenant LIMIT most));
        GET DIAGNOSTICS gone = ROW_COUNT;
        IF gone < most THEN
            DELETE FROM audit_chains c WHERE c.tenant_id = of_tenant;
        END IF;
        RETURN gone;
    END IF;
    IF older_than_days IS NULL OR older_than_days < 1 THEN
        RAISE EXCEPTION 'Records of the last day are kept.' USING ERRCODE = 'insufficient_privilege';
    END IF;
    WHILE gone < most LOOP
        SELECT c.* INTO chain
          FROM audit_chains c
         CROSS JOIN LATERAL (SELECT e.at FROM audit_events e
                              WHERE e.tenant_id = c.tenant_id AND e.seq > c.anchor_seq
                              ORDER BY e.seq
                              LIMIT 1) first
         WHERE first.at < young
         LIMIT 1;
        EXIT WHEN NOT FOUND;
        SELECT e.* INTO last
          FROM (SELECT o.*, bool_and(o.at < young) OVER (ORDER BY o.seq) AS is_due
                  FROM (SELECT * FROM audit_events o
                         WHERE o.tenant_id = chain.tenant_id AND o.seq > chain.anchor_seq
                         ORDER BY o.seq
                         LIMIT most - gone) o) e
         WHERE e.is_due
         ORDER BY e.seq DESC
         LIMIT 1;
        DELETE FROM audit_events e
         WHERE e.tenant_id = chain.tenant_id AND e.seq > chain.anchor_seq AND e.seq <= last.seq;
        GET DIAGNOSTICS batch = ROW_COUNT;
        gone := gone + batch;
        UPDATE audit_chains c SET anchor_seq = last.seq, anchor_hash = last.hash WHERE c.tenant_id = chain.tenant_id;
        INSERT INTO audit_events (id, tenant_id, actor_kind, actor_id, actor_name, action, target_kind, target_id,
                                  arguments_hash, times)
        VALUES ('aud_' || lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000000)::bigint), 14, '0')
                       || left(replace(gen_random_uuid()::text, '-', ''), 12),
                chain.tenant_id, 'command', 'retention', 'retention', 'audit.deleted', 'audit', last.seq::text,
                encode(last.hash, 'hex'), batch);
    END LOOP;
    RETURN gone;
END
$$
"""
"""Deletes at most so many records, and returns how many: of an ended tenant, or those that are older than some days.

By age it deletes a chain from its beginning up to the first record that is younger. The anchor is the last deleted one;
a record of the deletion, which is in the chain, has its number and its hash: a process that calls this out of turn
shows itself."""

_TABLES: Final = ("audit_events", "audit_chains")
_SIGNATURES: Final = {
    "record_audit()": (),
    "record_answer()": (),
    "record_act(text, text, text, text, text, int)": (FLEET_ROLE, TENANT_ROLE),
    "seal_audit(int)": (FLEET_ROLE,),
    "delete_audit(text, int, int)": (FLEET_ROLE,),
}
"""The functions that act with the rights of the log's owner, and the roles that may call them; triggers need none."""

_MAKE_ROLE = f"""
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{AUDIT_ROLE}') THEN
        CREATE ROLE {AUDIT_ROLE} NOLOGIN;
    END IF;
EXCEPTION
    -- Another database of the server made it at this moment; or this user makes no roles, and keeps the log.
    WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN NULL;
END
$$
"""

_OWN = """
DO $$
BEGIN
    IF to_regclass('audit_chains') IS NULL OR NOT EXISTS (
        SELECT FROM pg_class WHERE oid = ANY (ARRAY[{tables}]::regclass[]) AND relowner::regrole::text <> '{role}'
         UNION ALL
        SELECT FROM pg_proc WHERE oid = ANY (ARRAY[{functions}]::regprocedure[]) AND proowner::regrole::text <> '{role}'
    ) THEN
        RETURN;
    END IF;
    IF NOT pg_has_role(current_user, '{role}', 'USAGE') THEN
        EXECUTE format('GRANT {role} TO %I', current_user);
    END IF;
    EXECUTE format('GRANT USAGE, CREATE ON SCHEMA %I TO {role}', current_schema());
    GRANT SELECT (id, ending_at) ON tenants TO {role};
    DROP POLICY IF EXISTS audit ON tenants;
    CREATE POLICY audit ON tenants FOR SELECT TO {role} USING (true);
    {statements}
    EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM {role}', current_schema());
EXCEPTION
    WHEN insufficient_privilege OR invalid_grant_operation OR undefined_object THEN
        RAISE NOTICE 'The audit log stays with the user %: %', current_user, SQLERRM;
END
$$
"""


def make_audit_role() -> str:
    """Return the statement that makes the role, if this user may. It may be repeated."""
    return _MAKE_ROLE


def own_audit() -> str:
    """Return the statement that gives the log to its role. It may be repeated.

    Without the right to do so it changes nothing: the log stays with the owner of the other tables.
    """
    changes = [f"ALTER TABLE {table} OWNER TO {AUDIT_ROLE};" for table in _TABLES]
    changes += [f"ALTER FUNCTION {signature} OWNER TO {AUDIT_ROLE};" for signature in _SIGNATURES]
    return _OWN.format(
        role=AUDIT_ROLE,
        tables=", ".join(f"'{table}'" for table in _TABLES),
        functions=", ".join(f"'{signature}'" for signature in _SIGNATURES),
        statements="\n    ".join(changes),
    )


def restrict_audit(table: str) -> list[str]:
    """Return the statements that let the roles of the fleet's processes only read a table of the log."""
    return [
        f"REVOKE ALL ON {table} FROM {FLEET_ROLE}, {TENANT_ROLE}",
        f"GRANT SELECT ON {table} TO {FLEET_ROLE}, {TENANT_ROLE}",
    ]


def chain_functions() -> list[str]:
    """Return the statements that make the functions of the chain, after those that add records. May be repeated."""
    rights = [
        statement
        for signature, roles in _SIGNATURES.items()
        for statement in (
            f"REVOKE ALL ON FUNCTION {signature} FROM PUBLIC",
            *(f"GRANT EXECUTE ON FUNCTION {signature} TO {role}" for role in roles),
        )
    ]
    return [_SEAL, _DELETE, *rights]
