"""The system prompt beside an agent's form: what the model gets of the configuration as it stands in the form."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from nova_workers.base.errors import Rejected
from nova_workers.client.client import NovaClient
from nova_workers.console.forms import Form, build
from nova_workers.contracts.agents import AGENT_ID_PATTERN
from nova_workers.contracts.http.agents import AgentPromptRequest, AgentPromptView, AgentWarning
from nova_workers.contracts.http.wire import AgentReplace
from nova_workers.contracts.usage import CHARS_PER_TOKEN

_SECTION = re.compile(r"^<(?P<tag>\w+)>\n(?P<text>.*?)\n</(?P=tag)>$", re.DOTALL | re.MULTILINE)
_UNNAMED = "new-agent"


@dataclass(frozen=True, slots=True)
class PromptPart:
    """A section of a prompt. The content of one cannot forge another's tag."""

    tag: str
    text: str

    @property
    def tokens(self) -> int:
        """Estimate, as the API's."""
        return -(-len(self.text) // CHARS_PER_TOKEN)


@dataclass(frozen=True, slots=True)
class ShownPrompt:
    """The prompt of a form; without a `view`, the problem that keeps it from being made, and what is wrong by field."""

    view: AgentPromptView | None
    problem: str | None = None
    errors: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def warnings(self) -> list[AgentWarning]:
        """What is permitted, and unlikely to work."""
        return [] if self.view is None else self.view.warnings

    @property
    def parts(self) -> list[PromptPart]:
        """The sections, in their order."""
        return [] if self.view is None else [PromptPart(*found) for found in _SECTION.findall(self.view.text)]


async def shown_prompt(client: NovaClient, agent_id: str, value: Mapping[str, object]) -> ShownPrompt:
    """Return the prompt of a configuration, which need not be saved.

    Args:
        agent_id: As it is in the prompt; of a new agent what was typed, if it is an id.
    """
    named = agent_id if re.fullmatch(AGENT_ID_PATTERN, agent_id) else _UNNAMED
    try:
        spec = build(AgentReplace, value)
        return ShownPrompt(await client.agents.prompt(named, AgentPromptRequest(spec=spec)))
    except Rejected as error:
        return ShownPrompt(None, error.message, Form().refused(error).errors)
