"""A worker process: Celery takes doorbells on threads, one asyncio loop executes all turns."""
