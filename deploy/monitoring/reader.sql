-- A role for the tables of the Grafana dashboards, which read the ledger. It sees all tenants, and of each only what
-- the dashboards show: no message, no configuration of an agent, no secret. Run it as the owner of the database:
--     psql "$NOVA_DATABASE_OWNER_URL" -f deploy/monitoring/reader.sql
-- and give it a password: \password nova_reader
CREATE ROLE nova_reader LOGIN BYPASSRLS CONNECTION LIMIT 5;
ALTER ROLE nova_reader SET default_transaction_read_only = on;
ALTER ROLE nova_reader SET statement_timeout = '10s';
GRANT pg_monitor TO nova_reader;
GRANT SELECT (id, name, timezone, max_cost_usd_per_day) ON tenants TO nova_reader;
GRANT SELECT (id, tenant_id, max_cost_usd_per_day, deleted_at) ON agents TO nova_reader;
GRANT SELECT (tenant_id, agent_id, status, queue, queued_at, finished_at, error_kind) ON runs TO nova_reader;
GRANT SELECT (tenant_id, agent_id, cost_usd, input_tokens, output_tokens, model_calls, created_at) ON usage TO nova_reader;
GRANT SELECT (status, due_at) ON effects TO nova_reader;
GRANT SELECT (status, target, due_at) ON deliveries TO nova_reader;
GRANT SELECT (enabled, deleted_at, next_fire_at) ON triggers TO nova_reader;
