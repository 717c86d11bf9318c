"""Write the baseline of new databases from the migrations: ``python -m tests.support.data.baseline``."""

from __future__ import annotations

import asyncio
import re
import subprocess
from typing import Final

import asyncpg

from models import migrate
from models.migrations.baseline import BASELINE
from models.rights.audit_chain import AUDIT_ROLE
from nova_workers.devstack.servers.binaries import postgres_programs
from tests.support.servers.databases import own_database, own_postgres

_HEAD: Final = """\
-- The schema of a new database. Written by `python -m tests.support.data.baseline` from the migrations: change those.
-- Revision: {revision}
SET LOCAL check_function_bodies = false;
SELECT pg_catalog.set_config('search_path', '', true);
"""
_TAIL: Final = """\
INSERT INTO public.alembic_version (version_num) VALUES ('{revision}');
"""

# Settings of the session, which depend on the version of pg_dump, its own comments, and commands of psql. What is in
# the body of a function is kept.
_OF_THE_DUMP: Final = re.compile(
    r"^(?:--\n-- .*\n--|-- Dumped .*|SET \w+ = .*|SELECT pg_catalog\.set_config\('search_path'.*|\\.*)\n", re.MULTILINE
)
# The extension may be an administrator's, who alone may comment on it.
_OF_THE_EXTENSION: Final = re.compile(r"^COMMENT ON EXTENSION .*\n", re.MULTILINE)
_GAP: Final = re.compile(r"\n{3,}")
_OWNER: Final = re.compile(r"(?<=ALTER DEFAULT PRIVILEGES )FOR ROLE \S+ ")


async def dump(url: str, *options: str) -> str:
    """Return what `pg_dump` writes of a database."""
    done = await asyncio.to_thread(
        subprocess.run, [postgres_programs() / "pg_dump", *options, url], capture_output=True, text=True, check=True
    )
    return done.stdout


async def write_from_chain(url: str) -> str:
    """Migrate an empty database by the chain, and return the text of its baseline."""
    await migrate.upgrade(url, from_baseline=False)
    connection = await asyncpg.connect(url)
    try:
        # The owner of the log is made by each migration, where its user may make roles.
        await connection.execute(f"REASSIGN OWNED BY {AUDIT_ROLE} TO CURRENT_USER; DROP OWNED BY {AUDIT_ROLE}")
    finally:
        await connection.close()
    schema = _OF_THE_DUMP.sub("", await dump(url, "--schema-only", "--no-owner"))
    schema = _GAP.sub("\n\n", _OF_THE_EXTENSION.sub("", _OWNER.sub("", schema)))
    revision = migrate.head()
    return _HEAD.format(revision=revision) + schema + _TAIL.format(revision=revision)


async def _write(admin_url: str) -> None:
    async with own_database(admin_url, template="template1") as url:
        BASELINE.write_text(await write_from_chain(url), "utf-8")


if __name__ == "__main__":
    # Without the template, which the baseline makes.
    with own_postgres(with_template=False) as server_url:
        asyncio.run(_write(server_url))
