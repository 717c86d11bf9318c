"""Agents: former ids, which name the agent that has them no more, and directories that keep their name."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_ID = sa.Text(collation="C")
_SCOPES = ("fleet", "tenant", "agent")


def upgrade() -> None:
    op.add_column("agents", sa.Column("renamed_to", _ID, nullable=True, comment="This is a former id: of which agent"))
    op.add_column(
        "agents",
        sa.Column("directory", _ID, nullable=True, comment="Name of its directory, if not its id: it was renamed"),
    )
    op.add_column(
        "agent_versions",
        sa.Column("renamed_from", _ID, nullable=True, comment="The id before, of a version that a rename made"),
    )
    _allow((*_SCOPES, "rename"))


def downgrade() -> None:
    op.execute("DELETE FROM switches WHERE scope = 'rename'")
    _allow(_SCOPES)
    op.drop_column("agent_versions", "renamed_from")
    op.drop_column("agents", "directory")
    op.drop_column("agents", "renamed_to")


def _allow(scopes: tuple[str, ...]) -> None:
    op.drop_constraint(op.f("ck_switches__scope"), "switches", type_="check")
    words = ", ".join(f"'{scope}'" for scope in scopes)
    op.create_check_constraint(op.f("ck_switches__scope"), "switches", f"scope IN ({words})")
