"""Everything asked of PostgreSQL: one method, one statement, one .sql file."""
