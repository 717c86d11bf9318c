# Generated from deploy/environment/client.toml by `make format`: change that file instead.
"""``/v1/skills`` of the client."""

from nova_workers.client.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.skills import SkillDetail, SkillFileContent, SkillPut, SkillView


class Skills:
    """``/v1/skills``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self, *, limit: int | None = None, cursor: str | None = None) -> Page[SkillView]:
        """Return a page of the library, by name."""
        return await self._transport.fetch(
            Page[SkillView], "GET", "/v1/skills", params={"limit": limit, "cursor": cursor}
        )

    async def get(self, name: str) -> SkillDetail:
        """Return a skill with the text of its SKILL.md."""
        return await self._transport.fetch(SkillDetail, "GET", f"/v1/skills/{name}")

    async def put(self, name: str, skill: SkillPut) -> SkillDetail:
        """Add a skill, or replace the whole skill of this name."""
        return await self._transport.fetch(SkillDetail, "PUT", f"/v1/skills/{name}", body=skill)

    async def delete(self, name: str) -> None:
        """Remove a skill; `Conflict` while an agent has it."""
        await self._transport.send("DELETE", f"/v1/skills/{name}")

    async def file(self, name: str, path: str) -> SkillFileContent:
        """Return a file of a skill."""
        return await self._transport.fetch(SkillFileContent, "GET", f"/v1/skills/{name}/file", params={"path": path})
