"""Effects of packages: kinds that the packages name."""

from alembic import op

revision = "0072"
down_revision = "0071"
branch_labels = None
depends_on = None

_OWN = "kind IN ('delivery', 'embeddings', 'title')"


def _replace_kinds(condition: str) -> None:
    name = op.f("ck_effects__kind")
    op.drop_constraint(name, "effects")
    op.create_check_constraint(name, "effects", condition)


def upgrade() -> None:
    _replace_kinds(f"{_OWN} OR position(':' in kind) > 1")


def downgrade() -> None:
    op.execute("DELETE FROM effects WHERE position(':' in kind) > 1")
    _replace_kinds(_OWN)
