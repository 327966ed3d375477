"""Read tables in databases: PostgreSQL servers, and DuckDB and SQLite files."""
