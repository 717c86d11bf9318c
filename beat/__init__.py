"""The periodic ticks that Celery beat sends."""
