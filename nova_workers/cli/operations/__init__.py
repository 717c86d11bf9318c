"""Commands for operators: processes, checks, migrations, keys, tenants, the fleet."""
