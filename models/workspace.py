"""Notes, sent files, skills and secrets."""

from datetime import datetime
from typing import Any

from sqlalchemy import Column, ForeignKeyConstraint, Index, LargeBinary
from sqlmodel import Field

from .base import Table
from .columns import big, boolean, fk, id_ref, json, pk, string, time


def _bytes() -> Any:
    return Field(sa_column=Column(LargeBinary, nullable=False))


class Note(Table, table=True):
    """A markdown document owned by an agent."""

    __tablename__ = "notes"
    __table_args__ = (Index(None, "tenant_id", "id"), Index(None, "tenant_id", "agent_id", "id"))

    id: str = pk()
    tenant_id: str = fk("tenants.id")
    agent_id: str = id_ref()
    title: str = string()
    content: str = string(default="")
    shared: bool = boolean(comment="Whether people see it")
    pinned: bool = boolean()
    created_at: datetime = time(now=True)
    updated_at: datetime = time(now=True)


class SentFile(Table, table=True):
    """A file that an agent sent to people. In the ledger, since workers share no disk."""

    __tablename__ = "sent_files"
    __table_args__ = (
        Index(None, "tenant_id", "id"),
        Index(None, "tenant_id", "agent_id", "id"),
        Index(None, "tenant_id", "thread_id", "id"),
        Index(None, "run_id"),
    )

    id: str = pk()
    tenant_id: str = fk("tenants.id")
    agent_id: str = id_ref()
    thread_id: str = id_ref()
    run_id: str = id_ref()
    name: str = string()
    media_type: str = string()
    size_bytes: int = big()
    caption: str | None = string(null=True)
    content: bytes = _bytes()
    created_at: datetime = time(now=True)


class Skill(Table, table=True):
    """A skill of the tenant's library: instructions that an agent reads when it needs them."""

    __tablename__ = "skills"

    tenant_id: str = fk("tenants.id", primary=True)
    name: str = string(primary=True)
    description: str = string()
    skill_md: str = string(comment="SKILL.md, unchanged")
    body: str = string(comment="The same without its front matter")
    front_matter: dict[str, Any] = json(default="'{}'", comment="contracts.skills.SkillFront")
    created_at: datetime = time(now=True)
    updated_at: datetime = time(now=True)


class SkillFile(Table, table=True):
    """A file beside a SKILL.md."""

    __tablename__ = "skill_files"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "skill_name"], ["skills.tenant_id", "skills.name"], ondelete="CASCADE"),
    )

    tenant_id: str = id_ref(primary=True)
    skill_name: str = string(primary=True)
    path: str = string(primary=True, comment="Relative to the skill's directory, with slashes")
    executable: bool = boolean()
    content: bytes = _bytes()


class Secret(Table, table=True):
    """A named secret, encrypted with a key that is not in the database."""

    __tablename__ = "secrets"

    tenant_id: str = fk("tenants.id", primary=True)
    name: str = string(primary=True)
    ciphertext: bytes = _bytes()
    key_id: str = string(comment="Id of the master key that encrypts it")
    description: str = string(default="")
    updated_by: str = string(comment="person, or the agent's id")
    created_at: datetime = time(now=True)
    updated_at: datetime = time(now=True)
