"""Doorbells for Celery's workers: dispatch, transport, application settings."""
