"""The configuration of orchestrations as frozen values: its sections, as a file has them.

`OrchestrationConfig` is what `parsing` beside it makes of a file that has no errors.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, StrictBool, StringConstraints, model_validator

from nova_workers.base.errors import ModelNotAvailableError
from nova_workers.base.true_numbers import TrueNumbers
from nova_workers.base.vocabulary import AgentRole, ModelTier, PermissionMode, ReasoningEffort, TaskCategory
from nova_workers.contracts.authors.rights import (
    ALLOWED_COMMANDS,
    BOUND,
    CEILING_ENGINE,
    MODE,
    PARTS,
    STEERS,
    WORKING_DIRECTORY,
    authored,
)
from nova_workers.contracts.mcp.servers import HttpServer, McpServerForm, ServerName, StdioServer

_MAX_ENTRIES = 500
_DAY_S = 86_400


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _no_parent(path: str) -> str:
    if ".." in path.split("/"):
        raise ValueError("write the path without '..'")
    return path


_Text = Annotated[str, StringConstraints(max_length=100_000, pattern=r"^[^\x00]+$")]
_Line = Annotated[str, StringConstraints(max_length=2_000, pattern=r"^[^\x00-\x1f]*$")]
_Path = Annotated[str, StringConstraints(pattern=r"^/[^\x00-\x1f]*$", max_length=1_000), AfterValidator(_no_parent)]
_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$")]
"""An alias, or a model's id as its provider writes it."""
_Tag = Annotated[str, StringConstraints(min_length=1, max_length=100, strip_whitespace=True, to_lower=True)]
_Tags = Annotated[tuple[_Tag, ...], Field(max_length=50)]
_CommandPattern = Annotated[
    str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00\r\n]*[^\x00\s][^\x00\r\n]*$")
]
_CommandPatterns = Annotated[tuple[_CommandPattern, ...], Field(max_length=200)]
_Tools = Annotated[tuple[Annotated[str, StringConstraints(min_length=1, max_length=200)], ...], Field(max_length=500)]
_ToolPattern = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$")]
_Timeout = Annotated[float, Field(gt=0, le=30 * _DAY_S)]
_Score = Annotated[float, Field(ge=0, le=1)]
_Factor = Annotated[float, Field(gt=0, le=1_000)]
_Tier = Annotated[ModelTier, BeforeValidator(_lower)]


class _Value(TrueNumbers):
    # Built at first use: the API imports these, and few of its requests need them.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


@authored(
    whitelist=ALLOWED_COMMANDS,
    blacklist=STEERS,
)
class CommandPolicy(_Value):
    """Which shell commands agents may run. A pattern of the blacklist wins over one of the whitelist."""

    whitelist: _CommandPatterns = ()
    """Commands that need no permission. ``*`` is any text, ``?`` any character."""
    blacklist: _CommandPatterns = ()
    """Commands that a person must permit."""


@authored(
    max_agent_depth=BOUND,
    max_concurrent_agents=BOUND,
    agent_timeout_seconds=BOUND,
    tool_call_timeout_seconds=BOUND,
    master_idle_seconds=BOUND,
    token_budget=BOUND,
    command_policy=PARTS,
)
class EngineConfig(_Value):
    """Bounds of every orchestration."""

    max_agent_depth: Annotated[int, Field(ge=0, le=50)] = 5
    """Most levels of agents below the master."""
    max_concurrent_agents: Annotated[int, Field(ge=1, le=1_000)] = 10
    """Most agents of one orchestration that are active at once."""
    agent_timeout_seconds: _Timeout = 7_200.0
    """Most time that an agent may reason; time in tools does not count."""
    tool_call_timeout_seconds: _Timeout = 7_200.0
    """Most time of one tool call."""
    master_idle_seconds: _Timeout = 3_600.0
    """Most time between two requests of an external master."""
    token_budget: Annotated[int, Field(ge=1, le=10**12)] | None = 20_000_000
    """Tokens of an orchestration whose request names no budget of tokens or cost: 300 calls of 60,000 tokens."""
    command_policy: CommandPolicy = Field(default_factory=CommandPolicy)


@authored(
    engine=CEILING_ENGINE,
    profile=STEERS,
    enabled=STEERS,
)
class ProviderConfig(_Value):
    """How a provider's models are reached. Keys are settings of the fleet, never part of a configuration."""

    engine: Literal["anthropic", "claude_agent", "codex", "gemini", "openai", "scripted"] = "openai"
    profile: _Name | None = None
    """The provider of this name in the settings of the engine `openai`; other engines have none."""
    enabled: StrictBool = True

    @model_validator(mode="after")
    def _has_profiles(self) -> "ProviderConfig":
        if self.profile is not None and self.engine != "openai":
            raise ValueError(f"the engine {self.engine!r} has no profiles; leave `profile` out")
        return self

    def model_name(self, model_id: str) -> str:
        """Return the name by which the provider's engine knows a model."""
        return model_id if self.profile is None else f"{self.profile}/{model_id}"


BUILT_IN_PROVIDERS: Final[Mapping[str, ProviderConfig]] = {
    "claude": ProviderConfig(engine="anthropic"),
    "codex": ProviderConfig(engine="openai", profile="openai"),
    "gemini": ProviderConfig(engine="openai", profile="gemini"),
    "minimax": ProviderConfig(engine="openai", profile="minimax"),
    "alibaba": ProviderConfig(engine="openai", profile="alibaba"),
}
"""The providers that every configuration has. An entry of the same name takes their place."""


@authored(
    model_id=STEERS,
    provider=STEERS,
    reasoning_effort=BOUND,
)
class ModelAlias(_Value):
    """What a short name stands for.

    With `provider`, `model_id` is the provider's own id. Without, it is another alias or a known model. A text alone is
    a `model_id`.
    """

    model_id: ModelName
    provider: _Name | None = None
    reasoning_effort: ReasoningEffort | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"model_id": value}
        if not isinstance(value, Mapping | ModelAlias):
            raise ValueError("write the name of a model, or a mapping with `model_id`")
        return value


@authored(
    provider=STEERS,
    model_id=STEERS,
    reasoning_effort=BOUND,
)
class ResolvedModel(_Value):
    """A model without any alias."""

    provider: str
    model_id: str
    reasoning_effort: ReasoningEffort | None = None


@authored(
    model=STEERS,
    cwd=WORKING_DIRECTORY,
    peer_model=STEERS,
    peer_models=STEERS,
    master_model=STEERS,
    judge_model=STEERS,
)
class Defaults(_Value):
    """What an orchestration takes where its request names nothing else."""

    model: ModelName | None = None
    """The model of agents; None chooses by the work."""
    cwd: _Path | None = None
    peer_model: ModelName | None = None
    """The model that `consult_peer` asks if no other is named."""
    peer_models: Annotated[tuple[ModelName, ...], Field(max_length=50)] = ()
    """With any, agents may have these models only."""
    master_model: ModelName | None = None
    judge_model: ModelName | None = None
    """The model that is asked once a day how good models are; None asks none."""


@authored(
    expert_id=STEERS,
    name=STEERS,
    description=STEERS,
    system_prompt=STEERS,
    tools=STEERS,
    model=STEERS,
    permission_mode=MODE,
    cwd=WORKING_DIRECTORY,
    mcp_servers=PARTS,
    exclude_plugins=STEERS,
)
class ExpertProfile(_Value):
    """An agent that others may consult."""

    expert_id: str = ""
    """The entry's key in `experts`."""
    name: Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f]*$")] = ""
    description: _Line = ""
    system_prompt: _Text
    tools: _Tools | None = None
    """Allow-list of tools; None allows those of its role."""
    model: ModelName | None = None
    permission_mode: Annotated[PermissionMode, BeforeValidator(_upper)] = "DEFAULT"
    cwd: _Path | None = None
    mcp_servers: Annotated[dict[ServerName, McpServerForm], Field(max_length=20)] = Field(
        default_factory=dict[str, McpServerForm]
    )
    """Servers of its own, beside the plugins."""
    exclude_plugins: Annotated[tuple[ServerName, ...], Field(max_length=100)] = ()
    """Plugins that it must not have."""


@authored(
    reads=STEERS,
    tools=STEERS,
)
class CapabilityProfile(_Value):
    """Which tools of capabilities agents of a role get, of those that their parent holds."""

    reads: StrictBool = True
    """Whether they get those that only read."""
    tools: Annotated[tuple[_ToolPattern, ...], Field(max_length=200)] = ()
    """Which others: names of tools or of whole capabilities; ``*`` is any text."""

    def includes(self, tool: str, *, reads: bool) -> bool:
        """Return whether a tool belongs to it. `reads`: whether the tool only reads."""
        return (reads and self.reads) or any(fnmatchcase(tool, pattern) for pattern in self.tools)


_WORKER_TOOLS = ("audio_speak", "browser", "file_send", "memory_save", "note_create", "note_pin", "note_update")
"""What work needs. Nothing that changes agents, plans work for later or reaches people by itself."""


@authored(
    WORKER=PARTS,
    EXPERT=PARTS,
    REVIEWER=PARTS,
)
class CapabilityProfiles(_Value):
    """The profiles of all roles that get tools of capabilities."""

    WORKER: CapabilityProfile = CapabilityProfile(tools=_WORKER_TOOLS)
    EXPERT: CapabilityProfile = CapabilityProfile()
    REVIEWER: CapabilityProfile = CapabilityProfile()

    def of(self, role: AgentRole) -> CapabilityProfile:
        """Return the profile of a role. A master gets none of these tools."""
        match role:
            case "WORKER":
                return self.WORKER
            case "EXPERT":
                return self.EXPERT
            case "REVIEWER":
                return self.REVIEWER
            case "MASTER":
                return CapabilityProfile(reads=False)


@authored(
    tags=STEERS,
)
class _Tagged(_Value):
    tags: _Tags = ()
    """Words of a prompt, or roles, for which the plugin is meant; without tags it is for every agent."""


class StdioPlugin(_Tagged, StdioServer):
    """A plugin that is a program."""


class HttpPlugin(_Tagged, HttpServer):
    """A plugin behind a URL."""


Plugin = Annotated[StdioPlugin | HttpPlugin, Field(discriminator="type")]
"""An MCP server that agents may have, with tags."""


@authored(
    provider=STEERS,
    tier=STEERS,
    affinities=STEERS,
    cost_factor=STEERS,
    speed_factor=STEERS,
    max_context_window=STEERS,
    enabled=STEERS,
)
class ModelOverride(_Value):
    """What a configuration says about a model, over what is known or can be inferred."""

    provider: _Name | None = None
    tier: _Tier | None = None
    affinities: dict[TaskCategory, _Score] = Field(default_factory=dict[TaskCategory, float])
    """How good it is for kinds of work, from 0 to 1. Those left out stay as they are."""
    cost_factor: _Factor | None = None
    """Cost in relation to the usual model, which is 1."""
    speed_factor: _Factor | None = None
    """Speed in relation to the usual model, which is 1."""
    max_context_window: Annotated[int, Field(ge=1_000, le=100_000_000)] | None = None
    """The window in tokens."""
    enabled: StrictBool = True
    """False: it is never chosen."""


_Models = Annotated[dict[ModelName, ModelAlias], Field(max_length=_MAX_ENTRIES)]
_Registry = Annotated[dict[ModelName, ModelOverride], Field(max_length=_MAX_ENTRIES)]


@authored(
    models=PARTS,
    model_registry=PARTS,
)
class ModelsDocument(_Value):
    """A ``models.yaml``: what discovery writes, beside a configuration that takes precedence."""

    models: _Models = Field(default_factory=dict[str, ModelAlias])
    model_registry: _Registry = Field(default_factory=dict[str, ModelOverride])


@authored(
    engine=PARTS,
    providers=PARTS,
    defaults=PARTS,
    experts=PARTS,
    plugins=PARTS,
    capability_profiles=PARTS,
)
class ConfigDocument(ModelsDocument):
    """A configuration file, whose aliases are not resolved."""

    engine: EngineConfig = Field(default_factory=EngineConfig)
    providers: Annotated[dict[_Name, ProviderConfig], Field(max_length=50)] = Field(
        default_factory=dict[str, ProviderConfig]
    )
    defaults: Defaults = Field(default_factory=Defaults)
    experts: Annotated[dict[_Name, ExpertProfile], Field(max_length=200)] = Field(
        default_factory=dict[str, ExpertProfile]
    )
    plugins: Annotated[dict[ServerName, Plugin], Field(max_length=100)] = Field(default_factory=dict[str, Plugin])
    capability_profiles: CapabilityProfiles = Field(default_factory=CapabilityProfiles)


@authored(
    engine=PARTS,
    providers=PARTS,
    models=PARTS,
    defaults=PARTS,
    experts=PARTS,
    plugins=PARTS,
    capability_profiles=PARTS,
    model_registry=PARTS,
)
class OrchestrationConfig(_Value):
    """A configuration without errors: aliases resolved, the two files merged.

    `models` has every name that may stand for a model: aliases, known models, and those of `model_registry`.
    """

    engine: EngineConfig = Field(default_factory=EngineConfig)
    providers: dict[str, ProviderConfig] = Field(default_factory=lambda: dict(BUILT_IN_PROVIDERS))
    models: dict[str, ResolvedModel] = Field(default_factory=dict[str, ResolvedModel])
    defaults: Defaults = Field(default_factory=Defaults)
    experts: dict[str, ExpertProfile] = Field(default_factory=dict[str, ExpertProfile])
    plugins: dict[str, Plugin] = Field(default_factory=dict[str, Plugin])
    capability_profiles: CapabilityProfiles = Field(default_factory=CapabilityProfiles)
    model_registry: dict[str, ModelOverride] = Field(default_factory=dict[str, ModelOverride])

    def model(self, name: str) -> ResolvedModel:
        """Return the model that a name stands for.

        Raises:
            ModelNotAvailableError: The configuration has no such name.
        """
        found = self.models.get(name)
        if found is None:
            raise ModelNotAvailableError(
                f"There is no model or alias {name!r} in the configuration of orchestrations. "
                "`nova orchestrations models` lists them; add an alias to its section `models`.",
                model=name,
            )
        return found

    def names_of_models(self) -> frozenset[str]:
        """Return every name and id of a model that the configuration uses or knows."""
        ids = (model.model_id for model in self.models.values())
        return frozenset({*self.models, *self.model_registry, *ids})

    def peers(self) -> frozenset[str]:
        """Return the ids of the models that agents may have; empty allows every model."""
        return frozenset(self.model(name).model_id for name in self.defaults.peer_models)
