"""The newest schema revision, known without importing Alembic; a test compares it with `migrations/`."""

HEAD = "0005"
