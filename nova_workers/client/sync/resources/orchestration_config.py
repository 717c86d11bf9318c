# Generated from nova_workers/client/resources/orchestration_config.py by `make format`: change that file instead.
"""The client's calls of the configuration of orchestrations, and of the models that they choose from."""

from nova_workers.client.headers import if_match
from nova_workers.client.sync.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.orchestration_config import (
    JudgementView,
    OrchestrationConfigInfo,
    OrchestrationConfigPut,
    OrchestrationConfigView,
    OrchestrationModelView,
)


class OrchestrationConfigs:
    """``/v1/orchestrations/config``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self) -> OrchestrationConfigView:
        """Return the newest configuration; version 0 if none was stored."""
        return self._transport.fetch(OrchestrationConfigView, "GET", "/v1/orchestrations/config")

    def put(self, config: OrchestrationConfigPut, *, if_version: int | None = None) -> OrchestrationConfigView:
        """Store a configuration; `InvalidInput` names every error, `VersionMismatch` a newer version."""
        return self._transport.fetch(
            OrchestrationConfigView, "PUT", "/v1/orchestrations/config", body=config, headers=if_match(if_version)
        )

    def versions(self, *, limit: int | None = None, cursor: str | None = None) -> Page[OrchestrationConfigInfo]:
        """Return a page of versions, newest first."""
        return self._transport.fetch(
            Page[OrchestrationConfigInfo],
            "GET",
            "/v1/orchestrations/config/versions",
            params={"limit": limit, "cursor": cursor},
        )

    def version(self, version: int) -> OrchestrationConfigView:
        """Return a version of the configuration."""
        return self._transport.fetch(OrchestrationConfigView, "GET", f"/v1/orchestrations/config/versions/{version}")


class OrchestrationModels:
    """``/v1/orchestrations/models``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Page[OrchestrationModelView]:
        """Return every model with its scores, in one page."""
        return self._transport.fetch(Page[OrchestrationModelView], "GET", "/v1/orchestrations/models")

    def judgement(self) -> JudgementView:
        """Return the latest question to the judge of models; `NotFound` if there was none."""
        return self._transport.fetch(JudgementView, "GET", "/v1/orchestrations/models/judgement")
