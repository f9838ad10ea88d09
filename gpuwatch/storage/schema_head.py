"""The newest schema revision, known without importing Alembic; a test holds it equal to `migrations/`."""

HEAD = "0004"
