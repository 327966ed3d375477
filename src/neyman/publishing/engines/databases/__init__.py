"""Tables in databases: of a PostgreSQL server, and of DuckDB and SQLite files."""
