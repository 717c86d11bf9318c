"""The index of vectors keeps them in half precision.

It is half as large, and half as expensive to write. Building it is fast where `maintenance_work_mem` holds it.
Afterwards processes of the release before find the same messages, but compare all vectors of an agent.
"""

import sqlalchemy as sa
from alembic import op

from nova_workers.base.release import part

create_index = part("models.migrations.concurrently").create_index


revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None

_WHERE = "dimensions = 384"


def upgrade() -> None:
    create_index(
        "ix_embeddings__hnsw_half_384",
        "embeddings",
        [sa.literal_column("(l2_normalize(embedding)::halfvec(384))").label("embedding_384")],
        using="hnsw",
        operators={"embedding_384": "halfvec_cosine_ops"},
        where=_WHERE,
    )
    with op.get_context().autocommit_block():
        op.drop_index("ix_embeddings__hnsw_384", "embeddings", postgresql_concurrently=True, if_exists=True)


def downgrade() -> None:
    create_index(
        "ix_embeddings__hnsw_384",
        "embeddings",
        [sa.literal_column("(embedding::vector(384))").label("embedding_384")],
        using="hnsw",
        operators={"embedding_384": "vector_cosine_ops"},
        where=_WHERE,
    )
    with op.get_context().autocommit_block():
        op.drop_index("ix_embeddings__hnsw_half_384", "embeddings", postgresql_concurrently=True, if_exists=True)
