"""The clock of the fleet: what Celery beat rings, and when."""
