"""The store: tables, migrations, and the repositories behind every port. SQLite by default, PostgreSQL by choice."""
