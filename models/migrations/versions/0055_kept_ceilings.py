"""The ceilings of a tenant are the operator's: the tenant's role in the database cannot change them."""

from alembic import op

from nova_workers.base.release import part

_ceilings = part("models.rights.ceilings")
keep_ceilings = _ceilings.keep_ceilings
release_ceilings = _ceilings.release_ceilings


revision = "0055"
down_revision = "0054"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for statement in keep_ceilings():
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    for statement in release_ceilings():
        op.get_bind().exec_driver_sql(statement)
