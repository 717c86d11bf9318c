# Generated from nova_workers/client/resources/skills.py by `make format`: change that file instead.
"""``/v1/skills`` of the client."""

from nova_workers.client.sync.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.skills import SkillDetail, SkillFileContent, SkillPut, SkillView


class Skills:
    """``/v1/skills``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> Page[SkillView]:
        """Return a page of the library, by name."""
        return self._transport.fetch(Page[SkillView], "GET", "/v1/skills", params={"limit": limit, "cursor": cursor})

    def get(self, name: str) -> SkillDetail:
        """Return a skill with the text of its SKILL.md."""
        return self._transport.fetch(SkillDetail, "GET", f"/v1/skills/{name}")

    def put(self, name: str, skill: SkillPut) -> SkillDetail:
        """Add a skill, or replace the whole skill of this name."""
        return self._transport.fetch(SkillDetail, "PUT", f"/v1/skills/{name}", body=skill)

    def delete(self, name: str) -> None:
        """Remove a skill; `Conflict` while an agent has it."""
        self._transport.send("DELETE", f"/v1/skills/{name}")

    def file(self, name: str, path: str) -> SkillFileContent:
        """Return a file of a skill."""
        return self._transport.fetch(SkillFileContent, "GET", f"/v1/skills/{name}/file", params={"path": path})
