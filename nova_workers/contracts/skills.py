"""Skills: a directory with a SKILL.md, in the open format of agent skills, and further files."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StringConstraints

from nova_workers.contracts.authors.rights import PARTS, STEERS, authored
from nova_workers.contracts.bodies import Body, Name, View

SKILL_MD = "SKILL.md"
SKILL_NAME_PATTERN = r"^[a-z0-9]+(-[a-z0-9]+)*$"

MAX_AGENT_SKILLS = 50
"""Every prompt of the agent contains their names and descriptions: about 5,000 tokens for 50."""
MAX_SKILL_MD_CHARS = 100_000
"""About 25,000 tokens. Longer text belongs in files that the model reads when it needs them."""
MAX_FILES = 100
MAX_FILE_BYTES = 1_048_576
MAX_SKILL_BYTES = 2_097_152
"""Limit for all files of a skill. As base64 they fit into the API's largest body (4 MiB)."""

SkillName = Annotated[str, StringConstraints(pattern=SKILL_NAME_PATTERN, min_length=1, max_length=64)]
"""Lower case letters, digits and single hyphens. Unique within a tenant; also the skill's directory name."""


def _are_unique(names: tuple[str, ...]) -> tuple[str, ...]:
    for at, name in enumerate(names):
        if name in names[:at]:
            raise ValueError(f"{name!r} is assigned twice; name it once")
    return names


SkillNames = Annotated[tuple[SkillName, ...], Field(max_length=MAX_AGENT_SKILLS), AfterValidator(_are_unique)]
"""The skills that an agent has, each once."""


@dataclass(frozen=True, slots=True)
class SkillFile:
    """A file beside a SKILL.md. `path` is relative to the skill's directory, with slashes."""

    path: str
    content: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True)
class SkillDirectory:
    """A skill as an engine writes it to disk.

    Attributes:
        name: Name of the directory.
        description: What the skill is for and when to use it.
        body: SKILL.md without its front matter.
        files: The further files.
    """

    name: str
    description: str
    body: str
    files: tuple[SkillFile, ...] = field(default=())


class SkillFront(BaseModel):
    """The front matter of a SKILL.md."""

    model_config = ConfigDict(
        defer_build=True, frozen=True, extra="forbid", populate_by_name=True, str_strip_whitespace=True
    )

    name: SkillName
    description: Annotated[str, StringConstraints(min_length=1, max_length=1_024)]
    license: Annotated[str, StringConstraints(min_length=1, max_length=500)] | None = None
    compatibility: Annotated[str, StringConstraints(min_length=1, max_length=500)] | None = None
    metadata: Annotated[dict[str, Annotated[str, StringConstraints(max_length=2_000)]], Field(max_length=64)] = Field(
        default_factory=dict[str, str]
    )
    allowed_tools: Annotated[
        tuple[Annotated[str, StringConstraints(min_length=1, max_length=200)], ...], Field(max_length=100)
    ] = Field(default=(), alias="allowed-tools")
    """The tools that the author intended. It grants nothing: trust and capabilities decide what an agent may do."""


@authored(
    path=STEERS,
    content_base64=STEERS,
    executable=STEERS,
)
class SkillFilePut(Body):
    """A file beside a SKILL.md."""

    path: Name
    """Relative to the skill's directory, with slashes."""
    content_base64: Annotated[str, StringConstraints(max_length=2 * MAX_FILE_BYTES)]
    executable: StrictBool = False


@authored(
    skill_md=STEERS,
    files=PARTS,
)
class SkillPut(Body):
    """A complete skill; replaces the one with its name."""

    skill_md: Annotated[str, StringConstraints(min_length=1, max_length=MAX_SKILL_MD_CHARS)]
    """The text of SKILL.md: front matter in YAML between lines of ``---``, then instructions in markdown."""
    files: Annotated[list[SkillFilePut], Field(max_length=MAX_FILES)] = Field(default_factory=list[SkillFilePut])


class SkillFileInfo(View):
    """A file beside a SKILL.md, without its content."""

    path: str
    size_bytes: int
    executable: bool


class SkillFileContent(SkillFileInfo):
    """A file beside a SKILL.md."""

    content_base64: str


class SkillView(View):
    """A skill of the library, without its SKILL.md text."""

    name: str
    description: str
    license: str | None = None
    compatibility: str | None = None
    metadata: dict[str, str] = Field(default_factory=dict[str, str])
    allowed_tools: list[str] = Field(default_factory=list[str])
    files: list[SkillFileInfo]
    created_at: datetime
    updated_at: datetime


class SkillDetail(SkillView):
    """A skill with the unchanged text of its SKILL.md."""

    skill_md: str
