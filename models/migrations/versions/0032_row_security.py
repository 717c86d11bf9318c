"""Roles with least rights, and row-level security on every table with a tenant."""

import sqlalchemy as sa
from alembic import op

from nova_workers.base.release import part

_row_security = part("models.rights.row_security")
COMMON_WORDS = _row_security.COMMON_WORDS
DEFAULT_RIGHTS = _row_security.DEFAULT_RIGHTS
FLEET_ROLE = _row_security.FLEET_ROLE
TENANT_ROLE = _row_security.TENANT_ROLE
make_roles = _row_security.make_roles
protect = _row_security.protect


revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

_ROLES = f"{FLEET_ROLE}, {TENANT_ROLE}"

_TENANT_TABLES = sa.text(
    "SELECT DISTINCT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid "
    "WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace "
    "AND (a.attname = 'tenant_id' OR c.relname = 'tenants') ORDER BY 1"
)


def upgrade() -> None:
    for statement in make_roles():
        op.execute(statement)
    op.execute(COMMON_WORDS)
    # Of this migration's user: tables of later migrations are granted as they are made.
    op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {_ROLES}")
    op.execute(DEFAULT_RIGHTS)
    op.execute(f"REVOKE INSERT, UPDATE, DELETE ON alembic_version FROM {_ROLES}")
    op.execute(f"GRANT USAGE ON SCHEMA public TO {_ROLES}")
    # Each statement commits by itself: together they would hold up the runs of the previous release on every table.
    with op.get_context().autocommit_block():
        for table in op.get_bind().scalars(_TENANT_TABLES).all():
            for statement in protect(table):
                op.execute(statement)


def downgrade() -> None:
    for table in op.get_bind().scalars(_TENANT_TABLES).all():
        op.execute(f"DROP POLICY fleet ON {table}")
        op.execute(f"DROP POLICY tenant ON {table}")
        op.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
    op.execute("DROP POLICY fleet_wide ON switches")
    op.execute("DROP FUNCTION message_word_shares()")
    # The roles stay, since other databases of the server may use them; here they have no rights any more.
    op.execute(f"ALTER DEFAULT PRIVILEGES IN SCHEMA public REVOKE ALL ON TABLES FROM {_ROLES}")
    op.execute(f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {_ROLES}")
    op.execute(f"REVOKE USAGE ON SCHEMA public FROM {_ROLES}")
