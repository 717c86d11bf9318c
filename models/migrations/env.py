"""Alembic's entry: runs migrations on the connection that `models.migrate` hands over."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    # Each migration stands or falls alone, and may leave its transaction for a concurrent index.
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
