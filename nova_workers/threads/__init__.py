"""Who may work on a thread: the Redis lock, the Postgres lease, and the repair of what a stop leaves open."""
