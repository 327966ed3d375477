"""Read tables in databases: PostgreSQL and MariaDB servers, and DuckDB and SQLite files."""
