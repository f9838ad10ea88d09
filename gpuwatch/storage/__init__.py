"""The store: tables, migrations, and the rows behind every port. SQLite by default, PostgreSQL by choice."""
