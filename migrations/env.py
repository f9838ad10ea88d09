"""Run by Alembic, which `gpuwatch.storage.setup.migrate` starts with an open connection, in one transaction."""

from __future__ import annotations

from alembic import context

from gpuwatch.storage.setup.tables import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
