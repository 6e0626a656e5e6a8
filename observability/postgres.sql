-- Who reads for Grafana: everything, and nothing but reads. Runs once, when the database of docker-compose.yml is made.

\getenv password GRAFANA_DATABASE_PASSWORD

CREATE ROLE grafana LOGIN PASSWORD :'password';
GRANT pg_read_all_data TO grafana;
ALTER ROLE grafana SET default_transaction_read_only = on;
ALTER ROLE grafana SET statement_timeout = '10s';
