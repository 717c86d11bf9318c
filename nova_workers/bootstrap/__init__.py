"""The only place that builds and connects things. Everything else is handed what it needs."""

from nova_workers.bootstrap.api import ApiServices, build_api
from nova_workers.bootstrap.worker import WorkerServices, build_worker

__all__ = ["ApiServices", "WorkerServices", "build_api", "build_worker"]
