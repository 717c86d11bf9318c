"""What began the threads of earlier releases, and the indexes of their lists.

The key that began one is unknown for those.
"""

import sqlalchemy as sa
from alembic import op

from nova_workers.base.release import part

create_index = part("models.migrations.concurrently").create_index

revision = "0078"
down_revision = "0077"
branch_labels = None
depends_on = None

_KEPT = "deleted_at IS NULL AND NOT ephemeral"
_INDEXES = {
    "ix_threads__listed_of_origin": (["tenant_id", "origin", "id"], _KEPT),
    "ix_threads__listed_of_creator": (["tenant_id", "created_by", "id"], f"created_by IS NOT NULL AND {_KEPT}"),
    "ix_threads__pinned": (["tenant_id", "id"], "pinned AND deleted_at IS NULL"),
    "ix_threads__archived": (["tenant_id", "id"], "archived AND deleted_at IS NULL"),
}

# A statement for so many threads, so that each holds its locks for a moment only.
_AT_ONCE = 10_000
_BATCH_END = sa.text("SELECT max(id) FROM (SELECT id FROM threads WHERE id > :after ORDER BY id LIMIT :number) batch")
# By their first run. Threads of channels have the name of theirs.
_FILL = sa.text("""
UPDATE threads t SET origin = f.origin
  FROM (SELECT h.id, CASE WHEN COALESCE(r.source, 'api') <> 'api' THEN r.source
                          WHEN h.meta ? 'channel' THEN 'channel' ELSE 'api' END AS origin
          FROM threads h LEFT JOIN runs r ON r.thread_id = h.id AND r.seq = 1
         WHERE h.id > :after AND h.id <= :end) f
 WHERE t.id = f.id AND t.origin <> f.origin
""")


def upgrade() -> None:
    with op.get_context().autocommit_block():
        connection, after = op.get_bind(), ""
        while (end := connection.scalar(_BATCH_END, {"after": after, "number": _AT_ONCE})) is not None:
            connection.execute(_FILL, {"after": after, "end": end})
            after = end
        op.execute("ALTER TABLE threads VALIDATE CONSTRAINT ck_threads__origin")
    for name, (columns, where) in _INDEXES.items():
        create_index(name, "threads", columns, where=where)


def downgrade() -> None:
    with op.get_context().autocommit_block():
        for name in _INDEXES:
            op.drop_index(name, "threads", postgresql_concurrently=True, if_exists=True)
