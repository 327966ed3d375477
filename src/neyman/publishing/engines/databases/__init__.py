"""Tables in databases: of servers of PostgreSQL and MariaDB, and of DuckDB and SQLite files."""
