"""Celery as the doorbell: transport, application settings, dispatch."""
