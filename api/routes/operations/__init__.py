"""Routes for operators: fleet, health, keys, tenant, usage."""
