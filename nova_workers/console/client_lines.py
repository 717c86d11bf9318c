"""The lines by which programs that people have reach a fleet. `CLIENTS` is the one list of them.

The page Connect and `docs/connect.md` are rendered from it, and `tests/integration/console/test_client_lines.py` runs
every entry against a fleet. No key is among the values: where a program reads the environment its lines name
``NOVA_API_KEY``, and elsewhere they have `KEY_PLACEHOLDER`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

KEY_PLACEHOLDER: Final = "nova_…"
"""What a person replaces by their key in files of programs that read no environment."""


@dataclass(frozen=True, slots=True)
class Lines:
    """A text that a person copies.

    Attributes:
        place: Where it belongs.
        language: Of its colours, and of the fence in the document.
        template: Has ``@URL@`` for the API's address and ``@AGENT@`` for the agent's id.
    """

    place: str
    language: str
    template: str

    def text(self, url: str, agent: str) -> str:
        """Return the text for an agent of the API at this address."""
        return self.template.replace("@URL@", url).replace("@AGENT@", agent)


@dataclass(frozen=True, slots=True)
class Client:
    """A program that people have.

    Attributes:
        key: Its fragment on the page.
        door: Its door's name in ``NOVA_DOORS``; None for what uses the HTTP API itself.
        install: The command that installs what it needs; None if it has that.
        note: What a person should know of it.
        page: The document that has more.
    """

    key: str
    title: str
    door: str | None
    install: str | None
    note: str
    page: str
    lines: tuple[Lines, ...]


CLIENTS: Final[tuple[Client, ...]] = (
    Client(
        key="curl",
        title="curl",
        door=None,
        install=None,
        note="Any program that speaks HTTP. The answer comes as server-sent events.",
        page="http-api.md",
        lines=(
            Lines(
                place="In a terminal",
                language="sh",
                template="""\
curl -sSN @URL@/v1/runs/stream \\
  -H "Authorization: Bearer $NOVA_API_KEY" -H "Content-Type: application/json" \\
  -d '{"agent_id": "@AGENT@", "message": "What is a fence?"}'
""",
            ),
        ),
    ),
    Client(
        key="nova",
        title="nova, the command",
        door=None,
        install="pip install nova-workers",
        note="A message; `nova chat` is a conversation.",
        page="tutorial.md",
        lines=(
            Lines(
                place="In a terminal",
                language="sh",
                template="""\
export NOVA_API_URL=@URL@
nova send --agent @AGENT@ "What is a fence?"
""",
            ),
        ),
    ),
    Client(
        key="python",
        title="Python",
        door=None,
        install="pip install nova-workers",
        note="There is an async client too, and both stream.",
        page="client.md",
        lines=(
            Lines(
                place="In a program",
                language="python",
                template="""\
import os

from nova_workers.client import SyncNovaClient
from nova_workers.contracts.http.wire import StatelessRunCreate

with SyncNovaClient("@URL@", os.environ["NOVA_API_KEY"]) as nova:
    run = nova.runs.wait(StatelessRunCreate(agent_id="@AGENT@", message="What is a fence?"))
    print(run.text)
""",
            ),
        ),
    ),
    Client(
        key="openai",
        title="OpenAI's SDK",
        door="openai",
        install="pip install openai",
        note="The model is the agent. The Responses and the Chat Completions API work, with streams.",
        page="doors.md#openai",
        lines=(
            Lines(
                place="In a program",
                language="python",
                template="""\
import os

from openai import OpenAI

client = OpenAI(base_url="@URL@/openai/v1", api_key=os.environ["NOVA_API_KEY"])
print(client.responses.create(model="@AGENT@", input="What is a fence?").output_text)
""",
            ),
        ),
    ),
    Client(
        key="openai-environment",
        title="Programs for OpenAI's API",
        door="openai",
        install=None,
        note=(
            "Most of them, such as litellm, Open WebUI and LibreChat, read these variables or have fields for "
            "the same two values. Their model is the agent's id."
        ),
        page="doors.md#openai",
        lines=(
            Lines(
                place="In their environment",
                language="sh",
                template="""\
export OPENAI_BASE_URL=@URL@/openai/v1
export OPENAI_API_KEY="$NOVA_API_KEY"
""",
            ),
        ),
    ),
    Client(
        key="claude-code",
        title="Claude Code",
        door="mcp",
        install=None,
        note="A tool for each agent of the key.",
        page="mcp.md",
        lines=(
            Lines(
                place="In a terminal, once for all projects",
                language="sh",
                template="""\
claude mcp add --scope user --transport http nova @URL@/mcp --header "Authorization: Bearer $NOVA_API_KEY"
""",
            ),
            Lines(
                place="Or for one project, in its file .mcp.json, which reads the key from the environment",
                language="json",
                template="""\
{
  "mcpServers": {
    "nova": {
      "type": "http",
      "url": "@URL@/mcp",
      "headers": { "Authorization": "Bearer ${NOVA_API_KEY}" }
    }
  }
}
""",
            ),
        ),
    ),
    Client(
        key="cursor",
        title="Cursor",
        door="mcp",
        install=None,
        note="A tool for each agent of the key, which Cursor reads from the environment.",
        page="mcp.md",
        lines=(
            Lines(
                place="In .cursor/mcp.json",
                language="json",
                template="""\
{
  "mcpServers": {
    "nova": {
      "url": "@URL@/mcp",
      "headers": { "Authorization": "Bearer ${env:NOVA_API_KEY}" }
    }
  }
}
""",
            ),
        ),
    ),
    Client(
        key="vscode",
        title="VS Code",
        door="mcp",
        install=None,
        note="A tool for each agent of the key, for which VS Code asks once, and which it keeps.",
        page="mcp.md",
        lines=(
            Lines(
                place="In .vscode/mcp.json",
                language="json",
                template="""\
{
  "inputs": [{ "type": "promptString", "id": "nova-key", "description": "API key of the fleet", "password": true }],
  "servers": {
    "nova": {
      "type": "http",
      "url": "@URL@/mcp",
      "headers": { "Authorization": "Bearer ${input:nova-key}" }
    }
  }
}
""",
            ),
        ),
    ),
    Client(
        key="mcp",
        title="Other clients of MCP",
        door="mcp",
        install="pip install 'nova-workers[mcp]'",
        note=(
            "For clients that start their servers as programs. What the API had not answered when it restarted "
            "is repeated."
        ),
        page="mcp.md",
        lines=(
            Lines(
                place=f"In their settings, with your key for {KEY_PLACEHOLDER}",
                language="json",
                template="""\
{
  "mcpServers": {
    "nova": {
      "command": "nova",
      "args": ["mcp"],
      "env": { "NOVA_API_URL": "@URL@", "NOVA_API_KEY": "nova_…" }
    }
  }
}
""",
            ),
        ),
    ),
    Client(
        key="zed",
        title="Zed",
        door=None,
        install="pip install 'nova-workers[acp]'",
        note=(
            "The agent works in the editor, on its files and in its terminal. The full path of `nova` finds it "
            "everywhere."
        ),
        page="editors.md",
        lines=(
            Lines(
                place=f"In settings.json, with your key for {KEY_PLACEHOLDER}",
                language="json",
                template="""\
{
  "agent_servers": {
    "Nova": {
      "type": "custom",
      "command": "nova",
      "args": ["acp", "--agent", "@AGENT@"],
      "env": { "NOVA_API_URL": "@URL@", "NOVA_API_KEY": "nova_…" }
    }
  }
}
""",
            ),
        ),
    ),
    Client(
        key="jetbrains",
        title="JetBrains",
        door=None,
        install="pip install 'nova-workers[acp]'",
        note="In AI Chat, as in Zed. Neovim and Emacs have plugins for the same program.",
        page="editors.md",
        lines=(
            Lines(
                place=f"In ~/.jetbrains/acp.json, with your key for {KEY_PLACEHOLDER}",
                language="json",
                template="""\
{
  "agent_servers": {
    "Nova": {
      "command": "nova",
      "args": ["acp", "--agent", "@AGENT@"],
      "env": { "NOVA_API_URL": "@URL@", "NOVA_API_KEY": "nova_…" }
    }
  }
}
""",
            ),
        ),
    ),
    Client(
        key="ag-ui",
        title="CopilotKit, and front ends of AG-UI",
        door="ag-ui",
        install="npm install @ag-ui/client",
        note=(
            "In CopilotKit it is an agent of the runtime: `new CopilotRuntime({ agents: { nova } })`. The key "
            "stays on the server."
        ),
        page="ag-ui.md",
        lines=(
            Lines(
                place="In a module of the server",
                language="js",
                template="""\
import { HttpAgent } from "@ag-ui/client";

export const nova = new HttpAgent({
  url: "@URL@/ag-ui/@AGENT@",
  headers: { Authorization: `Bearer ${process.env.NOVA_API_KEY}` },
});
""",
            ),
        ),
    ),
    Client(
        key="a2a",
        title="Agents and clients of A2A",
        door="a2a",
        install="pip install 'a2a-sdk[http-server]'",
        note="Other clients take the address of the agent, below which its card is.",
        page="a2a.md",
        lines=(
            Lines(
                place="In a program",
                language="python",
                template="""\
import asyncio
import os

import httpx
from a2a.client import ClientConfig, create_client
from a2a.helpers import get_artifact_text, new_text_message
from a2a.types import Role, SendMessageRequest


async def main() -> None:
    headers = {"Authorization": f"Bearer {os.environ['NOVA_API_KEY']}"}
    async with httpx.AsyncClient(headers=headers, timeout=600) as http:
        config = ClientConfig(httpx_client=http, streaming=False)
        agent = await create_client("@URL@/a2a/@AGENT@", config)
        message = new_text_message("What is a fence?", role=Role.ROLE_USER)
        async for answer in agent.send_message(SendMessageRequest(message=message)):
            print(*(get_artifact_text(artifact) for artifact in answer.task.artifacts))


asyncio.run(main())
""",
            ),
        ),
    ),
    Client(
        key="langgraph",
        title="LangGraph's SDK",
        door="langgraph",
        install="pip install langgraph-sdk",
        note="An assistant is an agent, and its values are the messages of the conversation. Streams work too.",
        page="from-langgraph.md#with-langgraph-sdk-as-it-is",
        lines=(
            Lines(
                place="In a program",
                language="python",
                template="""\
import os

from langgraph_sdk import get_sync_client

client = get_sync_client(url="@URL@/langgraph", api_key=os.environ["NOVA_API_KEY"])
said = {"messages": [{"role": "user", "content": "What is a fence?"}]}
values = client.runs.wait(None, "@AGENT@", input=said)
print(values["messages"][-1]["content"])
""",
            ),
        ),
    ),
)
"""Every client, in the order of the page."""


def setup(url: str) -> str:
    """Return the lines that put address and key into a terminal's environment. The key is typed, and in no history."""
    return f"export NOVA_API_URL={url}\nread -rs NOVA_API_KEY && export NOVA_API_KEY\n"


def doors_with(*names: str) -> str:
    """Return the line that opens these doors, for the API's environment."""
    listed = ", ".join(f'"{name}"' for name in sorted(set(names)))
    return f"export NOVA_DOORS='[{listed}]'"


def clients_of(doors: Sequence[str | None]) -> list[Client]:
    """Return the clients of these doors, in their order; None is the HTTP API."""
    return [client for client in CLIENTS if client.door in doors]
