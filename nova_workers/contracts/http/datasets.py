"""The HTTP contract of datasets: examples by which versions of agents are compared."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, StrictBool, StringConstraints, field_validator, model_validator

from nova_workers.base.vocabulary import FinishStatus, Rating
from nova_workers.contracts.agents import AgentId
from nova_workers.contracts.bodies import Body, Moment, Name, OneLine, View
from nova_workers.contracts.content import ContentBlock, JsonObject, storable, storable_json
from nova_workers.contracts.http.agents import MAX_VERSION
from nova_workers.contracts.http.wire import PastMessage

MAX_DATASETS: Final = 100
"""Most datasets of a tenant."""
MAX_EXAMPLES: Final = 10_000
"""Most examples of a version."""
MAX_KEPT_EXAMPLES: Final = 50_000
"""Most examples of all versions of a dataset."""
MAX_ADDED: Final = 1_000
"""Most examples of a request."""
MAX_FROM_RUNS: Final = 200
"""Most examples that a request takes from runs."""
MAX_EXAMPLE_BYTES: Final = 256 * 1024
MAX_CONTEXT_MESSAGES: Final = 500
MAX_RECORDED_CALLS: Final = 200
DATASET_NAME_PATTERN: Final = r"^[a-z0-9][a-z0-9_-]{0,62}$"
EXAMPLE_KEY_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,119}$"

DatasetName = Annotated[str, StringConstraints(pattern=DATASET_NAME_PATTERN)]
ExampleKey = Annotated[str, StringConstraints(pattern=EXAMPLE_KEY_PATTERN)]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
"""A split, or a tag."""
Tags = Annotated[tuple[Word, ...], Field(max_length=20)]
_Description = Annotated[OneLine, StringConstraints(max_length=500)]
_Rubric = Annotated[str, StringConstraints(min_length=1, max_length=10_000), AfterValidator(storable)]
_Stored = Annotated[Any, AfterValidator(storable_json)]
_Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,80}$")]


class Redaction(Body):
    """What is taken out of each example before it is stored. It does not change those that are there."""

    emails: StrictBool = False
    """Addresses of electronic mail."""
    numbers: StrictBool = False
    """Numbers of 7 digits or more, also in groups: of telephones, cards and accounts."""
    secrets: StrictBool = False
    """Keys of vendors, private keys, tokens, and passwords in addresses."""
    words: Annotated[tuple[Annotated[Name, StringConstraints(min_length=2)], ...], Field(max_length=100)] = ()
    """These texts, in any case."""


class DatasetCreate(Body):
    """A new dataset, without examples."""

    name: DatasetName
    description: _Description = ""
    redact: Redaction = Redaction()


class DatasetPatch(Body):
    """Fields to change; omitted or null fields stay unchanged."""

    description: _Description | None = None
    redact: Redaction | None = None


class DatasetView(View):
    """A dataset."""

    id: str
    name: str
    description: str
    redact: Redaction
    version: int
    """Raised by every change of the examples; 0 has none."""
    examples: int
    """How many the present version has."""
    created_at: datetime
    updated_at: datetime


class RecordedCall(Body):
    """A tool call of the turn that an example was taken from, and its result: for replay."""

    tool: Name
    arguments: Annotated[JsonObject, AfterValidator(storable_json)] = Field(default_factory=dict)
    result: Annotated[str | list[ContentBlock], AfterValidator(storable_json)] = ""
    is_error: StrictBool = False


class ExampleGive(Body):
    """An example to add. One with the key of another replaces that in the next version."""

    key: ExampleKey | None = None
    """Null makes one of the content, so that the same example is not added twice."""
    input: (
        Annotated[str, StringConstraints(min_length=1)]
        | Annotated[list[ContentBlock], Field(min_length=1, max_length=200)]
    )
    """The user's message: text, or content blocks."""
    context: Annotated[list[PastMessage], Field(max_length=MAX_CONTEXT_MESSAGES)] = Field(
        default_factory=list[PastMessage]
    )
    """The messages before it, oldest first."""
    calls: Annotated[list[RecordedCall], Field(max_length=MAX_RECORDED_CALLS)] = Field(
        default_factory=list[RecordedCall]
    )
    expected: _Stored = None
    """The expected answer: a text, or JSON."""
    rubric: _Rubric | None = None
    """What a good answer has, for a judge."""
    tags: Tags = ()
    split: Word | None = None
    """Such as `train` or `test`."""


class Shares(Body):
    """How examples without a split are divided: each by its key, so that it stays in its split."""

    shares: Annotated[dict[Word, Annotated[float, Field(gt=0, le=1)]], Field(min_length=1, max_length=10)]
    """By split, its part; the sum is 1."""

    @field_validator("shares")
    @classmethod
    def _has_all(cls, shares: dict[str, float]) -> dict[str, float]:
        if abs(sum(shares.values()) - 1) > 1e-6:
            raise ValueError(f"their sum is {sum(shares.values()):g}, and must be 1")
        return shares


class ExamplesAdd(Body):
    """Examples to add: all of them in one new version, or none."""

    examples: Annotated[list[ExampleGive], Field(min_length=1, max_length=MAX_ADDED)]
    split: Shares | None = None


class RunSelection(Body):
    """Which ended runs examples are taken from: the newest that match every given field."""

    run_ids: Annotated[list[_Id], Field(min_length=1, max_length=MAX_FROM_RUNS)] | None = None
    agent_id: AgentId | None = None
    agent_version: Annotated[int, Field(ge=1, le=MAX_VERSION)] | None = None
    """Only those that this version of their agent executed."""
    thread_id: _Id | None = None
    status: FinishStatus | None = None
    since: Moment | None = None
    """Only those submitted at this time or later."""
    until: Moment | None = None
    """Only those submitted before this time."""
    rated: Rating | None = None
    """Only those with feedback whose score is above 0 (`up`), or below (`down`)."""
    tool: Name | None = None
    """Only those that called this tool."""
    tag: Name | None = None
    """Only those with this word among the `tags` of their metadata."""
    text: Annotated[OneLine, StringConstraints(min_length=1, max_length=200)] | None = None
    """Only those with this text in their message, answer or error, in any case."""

    @model_validator(mode="after")
    def _has_a_condition(self) -> Self:
        if not self.model_dump(exclude_none=True):
            raise ValueError("give at least one condition")
        return self


class ExamplesFromRuns(Body):
    """Examples to take from runs: their message, the conversation before it, and their tool calls with results."""

    runs: RunSelection
    limit: Annotated[int, Field(ge=1, le=MAX_FROM_RUNS)] = 50
    context: StrictBool = True
    """Whether they have the conversation before; of a long one the end."""
    expected: Literal["none", "answer"] = "none"
    """`answer`: the answer of the run is the expected one, as of those that were rated up."""
    expected_text: Annotated[str, StringConstraints(min_length=1), AfterValidator(storable)] | None = None
    """The expected answer of each, as a person wrote it."""
    rubric: _Rubric | None = None
    """What a good answer to each has, for a judge."""
    tags: Tags = ()
    split: Word | Shares | None = None

    @model_validator(mode="after")
    def _expects_one(self) -> Self:
        if self.expected == "answer" and self.expected_text is not None:
            raise ValueError("expected: give expected_text, or the answer of the run")
        return self


class ExamplesAdded(View):
    """What became of examples."""

    version: int
    """The dataset's version afterwards; unchanged if nothing was added."""
    added: int
    replaced: int
    """How many replaced one of the same key."""
    unchanged: int
    """How many were there already."""
    shortened: int = 0
    """Of how many the conversation before lost its beginning, to be small enough."""
    skipped: dict[str, str] = Field(default_factory=dict[str, str])
    """By run, why it has no example: it is too large, or never began."""


class ExampleView(View):
    """An example of a dataset."""

    id: str
    key: str
    added_version: int
    removed_version: int | None
    """The first version without it; null in the present one."""
    input: list[ContentBlock]
    context: list[PastMessage]
    calls: list[RecordedCall]
    expected: Any
    rubric: str | None
    tags: list[str]
    split: str | None
    source_thread_id: str | None
    """The thread that it was taken from, and is deleted with."""
    source_run_id: str | None
    created_at: datetime
