"""The clock of the fleet: the ticks that Celery beat sends."""
