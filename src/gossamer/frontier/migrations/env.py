"""What Alembic runs to migrate: on the connection, and in the transaction, that `postgres_schema.upgrade` opened."""

from __future__ import annotations

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table_schema=context.config.attributes["schema"],
)
context.run_migrations()
