"""The worker process: Celery receives doorbells on threads, one asyncio loop executes all turns."""
