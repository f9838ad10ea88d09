"""The store: tables, migrations, and the repositories behind every port. SQLite by default, PostgreSQL by choice."""

HEAD = "0012"  # the newest schema, known without importing Alembic; a test compares it with `migrations/`
