"""The audit log: chains over records, who answered and what they decided, and a role of its own that owns the log."""

import sqlalchemy as sa
from alembic import op

from nova_workers.base.release import part

_audit = part("models.rights.audit")
RECORD_AUDIT = _audit.RECORD_AUDIT
audit_answers = _audit.audit_answers
record_acts = _audit.record_acts
_audit_chain = part("models.rights.audit_chain")
chain_functions = _audit_chain.chain_functions
make_audit_role = _audit_chain.make_audit_role
own_audit = _audit_chain.own_audit
restrict_audit = _audit_chain.restrict_audit
protect = part("models.rights.row_security").protect


revision = "0053"
down_revision = "0052"
branch_labels = None
depends_on = None

_NO_HASH = "'\\x" + 64 * "0" + "'::bytea"
_COLUMNS = (
    sa.Column(
        "actor_name", sa.Text(), nullable=True, comment="Of the key at that time; of an agent or a command its id"
    ),
    sa.Column(
        "arguments_hash", sa.Text(), nullable=True, comment="SHA-256 of what was decided, given or asked for, in hex"
    ),
    sa.Column(
        "times",
        sa.Integer(),
        server_default=sa.text("1"),
        nullable=False,
        comment="How often, where equal ones are one record",
    ),
    sa.Column("seq", sa.BigInteger(), nullable=True, comment="Number in the tenant's chain; null until it is sealed"),
    sa.Column("hash", sa.LargeBinary(), nullable=True, comment="Over this record and the hash before"),
)
_NAMES = """
UPDATE audit_events e SET actor_name = COALESCE(k.name, CASE WHEN e.actor_kind <> 'key' THEN e.actor_id END)
  FROM audit_events o LEFT JOIN api_keys k ON k.tenant_id = o.tenant_id AND k.id = o.actor_id AND o.actor_kind = 'key'
 WHERE o.id = e.id
"""
_COMMENT = "What a key, an agent or a command did: who, what, which thing, from where. Sealed once, and never changed."
_COMMENT_BEFORE = (
    "One change that a key, an agent or a command made: who, what, which thing, from where. Never updated."
)


def _hash(name: str, comment: str) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary(), server_default=sa.text(_NO_HASH), nullable=False, comment=comment)


def _number(name: str, comment: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), server_default=sa.text("0"), nullable=False, comment=comment)


def upgrade() -> None:
    for column in _COLUMNS:
        op.add_column("audit_events", column)
    op.execute(_NAMES)
    op.execute(f"COMMENT ON TABLE audit_events IS '{_COMMENT}'")
    op.create_table(
        "audit_chains",
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        _number("seq", "Number of the last record that was sealed"),
        _hash("hash", "Of that record"),
        sa.Column("sealed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        _number("anchor_seq", "Number of the last record that retention deleted; 0 for none"),
        _hash("anchor_hash", "Of that record, to which the first one that is left is chained"),
        sa.PrimaryKeyConstraint("tenant_id", name=op.f("pk_audit_chains")),
        comment="The chain over a tenant's records: its head, and its anchor where older records were deleted.",
    )
    op.execute("DROP FUNCTION IF EXISTS record_clearing")
    statements = (
        *protect("audit_chains"),
        *restrict_audit("audit_chains"),
        *restrict_audit("audit_events"),
        RECORD_AUDIT,
        *record_acts(),
        *chain_functions(),
        audit_answers(),
        make_audit_role(),
        own_audit(),
    )
    for statement in statements:
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    op.execute("DROP TRIGGER audit ON run_waits")
    op.execute("DROP POLICY IF EXISTS audit ON tenants")
    for function in ("record_answer", "record_act", "seal_audit", "delete_audit"):
        op.execute(f"DROP FUNCTION {function}")
    op.drop_table("audit_chains")
    for column in _COLUMNS:
        op.drop_column("audit_events", column.name)
    op.get_bind().exec_driver_sql(RECORD_AUDIT.replace(" actor_name,", "").replace(" actor ->> 'name',", ""))
    op.execute(f"COMMENT ON TABLE audit_events IS '{_COMMENT_BEFORE}'")
