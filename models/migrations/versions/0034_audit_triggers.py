"""The audit log: its triggers on the tables of things that people and agents manage."""

import sqlalchemy as sa
from alembic import op

from nova_workers.base.release import part

_audit = part("models.rights.audit")
AUDITED = _audit.AUDITED
audit = _audit.audit


revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A later migration may make a table that is audited, and its trigger; that of threads names columns of a later one.
    present = set(sa.inspect(op.get_bind()).get_table_names()) - {"threads"}
    # Each statement commits by itself: together they would hold up the writes of the previous release on every table.
    with op.get_context().autocommit_block():
        for statement in audit(present):
            op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    for table in AUDITED:
        op.execute(f"DROP TRIGGER IF EXISTS audit ON {table}")
