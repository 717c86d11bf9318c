"""The HTTP contract of feedback: what people, end users and programs say of runs."""

from datetime import datetime
from typing import Annotated, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from nova_workers.base.vocabulary import FeedbackSource
from nova_workers.contracts.bodies import Body, OneLine, View
from nova_workers.contracts.content import storable

MAX_COMMENT_CHARS = 4_000
MAX_FEEDBACK_PER_RUN = 100
FEEDBACK_NAME_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,62}$"
RATING = "rating"
"""The name of feedback that has none: thumbs up, or down."""

FeedbackName = Annotated[str, StringConstraints(pattern=FEEDBACK_NAME_PATTERN)]
Score = Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)]
Label = Annotated[OneLine, StringConstraints(min_length=1, max_length=100)]
Comment = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_COMMENT_CHARS), AfterValidator(storable)
]
Author = Annotated[OneLine, StringConstraints(max_length=200)]


class FeedbackGive(Body):
    """What its author says of a run. It replaces what the same author said under the same name of the same part."""

    name: FeedbackName = RATING
    """What is judged, such as `rating` or `helpfulness`."""
    score: Score | None = None
    """A number from -1 to 1: a thumb down is -1, a thumb up is 1."""
    label: Label | None = None
    """A word for it, such as `too-long`."""
    comment: Comment | None = None
    step: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """The index of the step that it is about, from 0; null is the whole run."""
    source: FeedbackSource | None = None
    """`person` is the default; with a key that has the scope `feedback` only, `user` is, and no other is permitted."""
    author: Author = ""
    """The person, end user or program, as you name it, where one key speaks for several."""

    @model_validator(mode="after")
    def _has_something(self) -> Self:
        if self.score is None and self.label is None and self.comment is None:
            raise ValueError("give a score, a label or a comment")
        return self


class FeedbackView(View):
    """What an author said of a run."""

    id: str
    run_id: str
    step: int | None
    thread_id: str
    agent_id: str
    agent_version: int | None
    """The version of the agent that the run used."""
    name: str
    score: float | None
    label: str | None
    comment: str | None
    source: FeedbackSource
    author: str
    key_id: str
    """The key of the request that gave it; of a session of single sign-on, its person."""
    created_at: datetime
    updated_at: datetime
    """When its author last changed it."""


class FeedbackFigures(View):
    """The feedback of one name on one version of an agent."""

    agent_version: int | None
    name: str
    count: int
    up: int
    """Those with a score above 0."""
    down: int
    """Those with a score below 0."""
    mean_score: float | None
    """The mean of those with a score; null if none has one."""


class FeedbackReport(View):
    """The feedback on an agent by version and name, the newest version first."""

    agent_id: str
    since: datetime
    """Only what was first given at this time or later is counted."""
    counted_within: int | None = None
    """Set if there is more: only so many of the newest are counted."""
    figures: list[FeedbackFigures]
