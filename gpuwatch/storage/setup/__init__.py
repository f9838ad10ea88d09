"""The database: tables, migrations, connections, backups."""
