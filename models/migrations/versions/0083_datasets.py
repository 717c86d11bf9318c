"""Datasets and their examples."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from nova_workers.base.release import part

audit = part("models.rights.audit").audit
protect = part("models.rights.row_security").protect

revision = "0083"
down_revision = "0082"
branch_labels = None
depends_on = None

_ID = sa.Text(collation="C")


def upgrade() -> None:
    op.create_table(
        "datasets",
        sa.Column("id", _ID, nullable=False),
        sa.Column("tenant_id", _ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column(
            "redact",
            postgresql.JSONB(),
            server_default=sa.text("'{}'"),
            nullable=False,
            comment="contracts.http.datasets.Redaction",
        ),
        sa.Column(
            "version",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Raised by every change of the examples; 0 has none",
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_datasets__tenant_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_datasets")),
        comment="A named set of examples. Each change of them raises its version.",
    )
    op.create_index(op.f("ix_datasets__tenant_id_name"), "datasets", ["tenant_id", "name"], unique=True)
    op.create_table(
        "dataset_examples",
        sa.Column("id", _ID, nullable=False),
        sa.Column("tenant_id", _ID, nullable=False),
        sa.Column("dataset_id", _ID, nullable=False),
        sa.Column("key", sa.Text(), nullable=False, comment="Its name; unique in each version"),
        sa.Column(
            "digest",
            sa.Text(),
            nullable=False,
            comment="SHA-256 of all that it says, in hex: equal ones are not added again",
        ),
        sa.Column("added_version", sa.Integer(), nullable=False),
        sa.Column("removed_version", sa.Integer(), nullable=True, comment="The first version without it"),
        sa.Column("split", sa.Text(), nullable=True, comment="Such as train or test"),
        sa.Column("tags", postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("input", postgresql.JSONB(), nullable=False, comment="The user's message as content blocks"),
        sa.Column(
            "context",
            postgresql.JSONB(),
            server_default=sa.text("'[]'"),
            nullable=False,
            comment="The messages before it, oldest first",
        ),
        sa.Column(
            "calls",
            postgresql.JSONB(),
            server_default=sa.text("'[]'"),
            nullable=False,
            comment="contracts.http.datasets.RecordedCall, in their order",
        ),
        sa.Column("expected", postgresql.JSONB(), nullable=True, comment="The expected answer: a text, or JSON"),
        sa.Column("rubric", sa.Text(), nullable=True, comment="What a good answer has, for a judge"),
        sa.Column(
            "source_thread_id", _ID, nullable=True, comment="The thread that it was taken from, and is deleted with"
        ),
        sa.Column("source_run_id", _ID, nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["dataset_id"], ["datasets.id"], name=op.f("fk_dataset_examples__dataset_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dataset_examples")),
        comment="An example of the versions from `added_version` to before `removed_version`. Else it never changes.",
    )
    op.create_index(
        "uq_dataset_examples__current",
        "dataset_examples",
        ["dataset_id", "key"],
        unique=True,
        postgresql_where=sa.text("removed_version IS NULL"),
    )
    op.create_index(op.f("ix_dataset_examples__dataset_id_id"), "dataset_examples", ["dataset_id", "id"])
    op.create_index(
        "ix_dataset_examples__source",
        "dataset_examples",
        ["source_thread_id"],
        postgresql_where=sa.text("source_thread_id IS NOT NULL"),
    )
    for table in ("datasets", "dataset_examples"):
        for statement in protect(table):
            op.get_bind().exec_driver_sql(statement)
    for statement in audit({"datasets"}):
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    op.drop_table("dataset_examples")
    op.drop_table("datasets")
