"""A tenant's ceilings are the operator's: the role in which sessions are bound to a tenant cannot change them."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, MetaData, event

from ..base import metadata
from .row_security import TENANT_ROLE

_FUNCTION = """
CREATE OR REPLACE FUNCTION keep_ceilings() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION 'only operators change the ceilings of tenant %', OLD.id USING ERRCODE = 'insufficient_privilege';
END
$$
"""
# Of a statement that writes the column, and changes it: a tenant's other settings are written by one statement with it.
_TRIGGER = f"""
CREATE OR REPLACE TRIGGER keep_ceilings BEFORE UPDATE OF ceilings ON tenants FOR EACH ROW
WHEN (current_user = '{TENANT_ROLE}' AND OLD.ceilings IS DISTINCT FROM NEW.ceilings) EXECUTE FUNCTION keep_ceilings()
"""


def keep_ceilings() -> list[str]:
    """Return the statements that keep ceilings from the tenant's role. They may be repeated.

    Nor does it delete a tenant: a row that is made again would have other ceilings.
    """
    return [_FUNCTION, _TRIGGER, f"REVOKE DELETE ON tenants FROM {TENANT_ROLE}"]


def release_ceilings() -> list[str]:
    """Return the statements that undo `keep_ceilings`."""
    return [
        "DROP TRIGGER keep_ceilings ON tenants",
        "DROP FUNCTION keep_ceilings",
        f"GRANT DELETE ON tenants TO {TENANT_ROLE}",
    ]


@event.listens_for(metadata, "after_create")
def _keep_created(_: MetaData, connection: Connection, *, tables: Sequence[Any], **__: object) -> None:
    """Do for a table made from the metadata what the migrations did."""
    if any(table.name == "tenants" for table in tables):
        for statement in keep_ceilings():
            connection.exec_driver_sql(statement)
