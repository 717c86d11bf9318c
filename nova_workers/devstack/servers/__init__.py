"""The embedded servers: Postgres and Valkey."""
