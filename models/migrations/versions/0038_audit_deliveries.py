"""The audit log: a kind of delivery to webhooks, and commands as actors."""

from alembic import op

from nova_workers.base.release import part

deliver_audit = part("models.rights.audit").deliver_audit


revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None

_KINDS = (
    "'notification', 'file', 'note', 'question', 'approval', 'run_completed', 'work_order_completed', "
    "'work_order_review', 'test'"
)
_COMMENTS = {
    "TABLE audit_events": "One change that a key, an agent or a command made: who, what, which thing, from where. "
    "Never updated.",
    "COLUMN audit_events.actor_kind": "key, agent or command",
    "COLUMN audit_events.address": "Of the client whose request it was; of a command the machine",
    "COLUMN webhooks.kinds": "Kinds of delivery that it receives; empty is all but audit_recorded",
}


def _replace_kinds(kinds: str) -> None:
    name = op.f("ck_deliveries__kind")
    op.drop_constraint(name, "deliveries")
    op.create_check_constraint(name, "deliveries", f"kind IN ({kinds})")


def upgrade() -> None:
    _replace_kinds(f"{_KINDS}, 'audit_recorded'")
    for target, text in _COMMENTS.items():
        op.execute(f"COMMENT ON {target} IS '{text}'")
    for statement in deliver_audit():
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    op.execute("DROP TRIGGER deliver ON audit_events")
    op.execute("DROP FUNCTION deliver_audit()")
    op.execute("DELETE FROM deliveries WHERE kind = 'audit_recorded'")
    op.execute("DELETE FROM audit_events WHERE actor_kind = 'command'")
    _replace_kinds(_KINDS)
