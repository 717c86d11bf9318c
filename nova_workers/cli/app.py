"""The `nova` command: a table of commands, each loaded when it is called.

`nova --help` imports none of them, which keeps it under a third of a second; a command imports only what it uses.
"""

import importlib
import sys
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from nova_workers.base.errors import NovaError
from nova_workers.base.program import exit_on_failed_output, finish_loading, import_sparingly, without_pydantic_plugins
from nova_workers.cli.extras import require_extra

EXIT_FAILED = 1
EXIT_UNKNOWN = 3
"""What was requested may have been done: a script that repeats it may do it twice."""

_TALK = "Talk to agents"
_LOOK = "Look and change"
_RUN = "Run a fleet"


@dataclass(frozen=True, slots=True)
class Lazy:
    """A command of the table: the module that holds its `app`, loaded when it is called."""

    name: str
    module: str
    help: str
    panel: str
    extra: str = ""
    """The extra that the command needs; most need none."""


COMMANDS = (
    Lazy("send", "nova_workers.cli.talk.send", "Send one message and stream the answer.", _TALK),
    Lazy(
        "orchestrate",
        "nova_workers.cli.orchestrations.orchestrate",
        "Give a task to a tree of agents, and watch it.",
        _TALK,
    ),
    Lazy(
        "mcp-master",
        "nova_workers.cli.orchestrations.mcp_master",
        "Serve MCP on stdio: your own assistant leads agents of the fleet.",
        _TALK,
        "mcp",
    ),
    Lazy("mcp", "nova_workers.cli.talk.mcp", "Serve MCP on stdio: agents are tools of your assistant.", _TALK),
    Lazy("chat", "nova_workers.cli.talk.chat", "Talk with an agent on one thread.", _TALK),
    Lazy("acp", "nova_workers.cli.acp.command", "Serve an editor on stdio: an agent of the fleet in it.", _TALK, "acp"),
    Lazy("agents", "nova_workers.cli.workspace.agents", "List, make and change agents.", _LOOK),
    Lazy("rollout", "nova_workers.cli.workspace.rollouts", "Roll out a version of an agent in steps.", _LOOK),
    Lazy("sampling", "nova_workers.cli.workspace.sampling", "Judge a share of the live runs of an agent.", _LOOK),
    Lazy("capabilities", "nova_workers.cli.workspace.capabilities", "See what agents can be granted.", _LOOK),
    Lazy("threads", "nova_workers.cli.records.threads", "List, read, fork and delete conversations.", _LOOK),
    Lazy("runs", "nova_workers.cli.records.runs", "List, follow, answer, edit and cancel runs.", _LOOK),
    Lazy("run-lists", "nova_workers.cli.records.run_lists", "Save lists of runs under names.", _LOOK),
    Lazy("feedback", "nova_workers.cli.records.feedback", "See what people say of runs, by version.", _LOOK),
    Lazy("datasets", "nova_workers.cli.evaluations.datasets", "Examples to compare versions of agents by.", _LOOK),
    Lazy("evals", "nova_workers.cli.evaluations.evals", "Compare versions of an agent over a dataset.", _LOOK),
    Lazy("watch", "nova_workers.cli.records.watch", "Show what changes in the fleet, as it does.", _LOOK),
    Lazy("waits", "nova_workers.cli.records.waits", "See what runs wait for.", _LOOK),
    Lazy("skills", "nova_workers.cli.workspace.skills", "The library of skills for agents.", _LOOK),
    Lazy(
        "secrets",
        "nova_workers.cli.workspace.secrets",
        "Set and delete secrets of agents; values are never shown.",
        _LOOK,
    ),
    Lazy("search", "nova_workers.cli.records.search", "Search messages by words and meaning.", _LOOK),
    Lazy("memories", "nova_workers.cli.workspace.memories", "List, add and delete what agents remember.", _LOOK),
    Lazy("notes", "nova_workers.cli.workspace.notes", "Read, write and share documents of agents.", _LOOK),
    Lazy("files", "nova_workers.cli.workspace.files", "List and fetch files that agents sent.", _LOOK),
    Lazy("inbox", "nova_workers.cli.workspace.inbox", "See what agents handed over beside answers.", _LOOK),
    Lazy("tasks", "nova_workers.cli.workspace.tasks", "List, make, follow and end the work that agents own.", _LOOK),
    Lazy("usage", "nova_workers.cli.records.usage", "Sum up tokens and cost by day, agent or model.", _LOOK),
    Lazy(
        "tenant",
        "nova_workers.cli.operations.tenant",
        "See and set time zone, hours, share of the fleet and bounds.",
        _LOOK,
    ),
    Lazy("tenants", "nova_workers.cli.operations.tenants", "Make, see, change and end tenants, as an operator.", _LOOK),
    Lazy("budgets", "nova_workers.cli.operations.tenant", "See what is left of the day's budgets.", _LOOK),
    Lazy("triggers", "nova_workers.cli.workspace.triggers", "Start agents at times or on demand.", _LOOK),
    Lazy(
        "orchestrations",
        "nova_workers.cli.orchestrations.commands",
        "See and change trees of agents, their configuration and models.",
        _LOOK,
    ),
    Lazy("orders", "nova_workers.cli.orders.commands", "Work orders, their policies and secrets.", _LOOK),
    Lazy("webhooks", "nova_workers.cli.workspace.webhooks", "Notify other programs of what happens here.", _LOOK),
    Lazy("init", "nova_workers.cli.projects.commands", "Make a project: agents, skills and triggers as files.", _LOOK),
    Lazy("plan", "nova_workers.cli.projects.commands", "Show what applying a project would change.", _LOOK),
    Lazy("apply", "nova_workers.cli.projects.commands", "Make the fleet what a project says.", _LOOK),
    Lazy("pull", "nova_workers.cli.projects.commands", "Write what the fleet has into a project's files.", _LOOK),
    Lazy("build", "nova_workers.cli.projects.building", "Make a wheel of a project.", _LOOK),
    Lazy("export", "nova_workers.cli.archive.commands", "Write the workspace into a folder of readable files.", _LOOK),
    Lazy("import", "nova_workers.cli.archive.commands", "Read such a folder into a tenant.", _LOOK),
    Lazy("audit", "nova_workers.cli.operations.audit", "See what was changed, and by whom.", _LOOK),
    Lazy("login", "nova_workers.cli.login.commands", "Sign in to a fleet as a person, at its provider.", _LOOK),
    Lazy("logout", "nova_workers.cli.login.commands", "End the session of `nova login`.", _LOOK),
    Lazy("keys", "nova_workers.cli.operations.keys", "Make and revoke API keys.", _LOOK),
    Lazy("fleet", "nova_workers.cli.operations.fleet", "See depth and workers; pause and resume.", _LOOK),
    Lazy(
        "channels",
        "nova_workers.cli.operations.channels",
        "Let people write to agents from elsewhere.",
        _RUN,
    ),
    Lazy("up", "nova_workers.cli.operations.processes", "Start the whole fleet on this machine.", _RUN, "local"),
    Lazy("dev", "nova_workers.cli.projects.dev", "Start it with a project, applied on each change.", _RUN, "local"),
    Lazy("doctor", "nova_workers.cli.operations.doctor", "Check everything, and say how to fix it.", _RUN, "fleet"),
    Lazy("support-bundle", "nova_workers.cli.operations.support", "Write a file with facts for help.", _RUN, "fleet"),
    Lazy("security", "nova_workers.cli.security.commands", "Try the walls of a fleet from outside.", _RUN),
    Lazy(
        "migrate",
        "nova_workers.cli.operations.migrate",
        "Migrate the database to this version.",
        _RUN,
        "fleet",
    ),
    Lazy("upgrade", "nova_workers.cli.operations.upgrade", "See what an upgrade takes, and migrate.", _RUN, "fleet"),
    Lazy("backup", "nova_workers.cli.backups.commands", "Write the whole database into a file.", _RUN, "fleet"),
    Lazy("restore", "nova_workers.cli.backups.commands", "Read such a file into an empty database.", _RUN, "fleet"),
    Lazy("api", "nova_workers.cli.operations.processes", "Run one API process.", _RUN, "fleet"),
    Lazy("worker", "nova_workers.cli.operations.processes", "Run one worker process.", _RUN, "fleet"),
    Lazy("beat", "nova_workers.cli.operations.processes", "Run the scheduler of periodic tasks.", _RUN, "fleet"),
    Lazy("install", "nova_workers.cli.projects.building", "Unpack wheels of projects on this machine.", _RUN),
    Lazy("console", "nova_workers.cli.operations.processes", "Run the web console.", _RUN, "console"),
    Lazy("flower", "nova_workers.cli.operations.processes", "Run Flower, the view of Celery's tasks.", _RUN, "fleet"),
    Lazy("version", "nova_workers.cli.version", "Print the versions of this installation.", _RUN),
)


class _Table(TyperGroup):
    """Shows the one-line help of each command, and imports a command's module when it is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._lazy = {entry.name: entry for entry in COMMANDS}
        for entry in COMMANDS:
            self.add_command(TyperCommand(entry.name, help=entry.help))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the table, one section per panel."""
        for panel in (_TALK, _LOOK, _RUN):
            with formatter.section(panel):
                formatter.write_dl([(entry.name, entry.help) for entry in COMMANDS if entry.panel == panel])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the imported command instead of its placeholder."""
        name, stand_in, rest = super().resolve_command(ctx, args)
        if name is None or stand_in is None:
            return name, stand_in, rest
        return name, _load(self._lazy[name]), rest


def _load(entry: Lazy) -> Any:
    if entry.extra:
        require_extra(entry.extra, f"nova {entry.name}")
    with without_pydantic_plugins():
        if entry.panel == _RUN:
            # They read the settings of servers, whose checks log.
            import_sparingly("structlog")
        loaded: typer.Typer = importlib.import_module(entry.module).app
    # From here on Ctrl-C raises, so that the command can clean up.
    finish_loading()
    command = typer.main.get_command(loaded)
    if isinstance(command, TyperGroup) and entry.name in command.commands:
        # A module of several top-level commands, rather than a group of its own.
        return command.commands[entry.name]
    command.name = entry.name
    return command


app = typer.Typer(
    cls=_Table,
    name="nova",
    help="Run AI agents on a fleet of your own. Start with: nova up, then nova chat.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    # Typer's rich help imports a Markdown parser and a syntax highlighter: 0.4 s where plain text takes 0.16 s.
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nova {importlib.import_module('nova_workers.cli.version').version_of('nova-workers')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line.

    Exits with 0; 1 for an expected failure, which is one line on stderr; 2 for a usage error; 3 if what was requested
    may have been done; 130 after Ctrl-C; 141 if the reader of stdout closed it.
    """
    try:
        with exit_on_failed_output("nova"):
            typer.main.get_command(app)(prog_name="nova")
    except NovaError as error:
        # With what a server said: who runs commands also runs servers, or sees them through the API only.
        _fail(str(error), EXIT_UNKNOWN if error.fields.get("may_be_written") else EXIT_FAILED)
    except OSError as error:
        # A file that a command reads or writes; network failures are raised as NovaError.
        _fail(str(error))


def _fail(message: str, code: int = EXIT_FAILED) -> NoReturn:
    sys.stderr.write(f"nova: {message}\n")
    sys.exit(code)
