"""`nova init`, `nova plan`, `nova apply` and `nova pull`."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer

from nova_workers.base.errors import Conflict, InvalidInput, Rejected
from nova_workers.base.vocabulary import OnDrift
from nova_workers.cli.command import Session, remote
from nova_workers.cli.projects.files import ProjectFiles, find_root, read_project
from nova_workers.cli.projects.gates import HeldBack, describe_gates, evaluate_changes, refusal_of
from nova_workers.cli.projects.pulling import pull_items
from nova_workers.cli.projects.showing import show_plan, summary
from nova_workers.cli.projects.starter import make_project
from nova_workers.cli.terminal.output import JsonOption, Output
from nova_workers.contracts.http.projects import ProjectApply, ProjectPlan

EXIT_PENDING = 4
"""`nova plan --check`: there is something to apply."""
EXIT_HELD_BACK = 5
"""`nova apply`: an agent was not applied, since it does not pass its evaluation."""

app = typer.Typer(add_completion=False, rich_markup_mode=None)

DirectoryOption = Annotated[
    Path, typer.Option("--dir", "-C", metavar="DIR", help="In the project. Default: the current directory.")
]
PruneOption = Annotated[bool, typer.Option("--prune", help="Delete what the project contains no longer.")]
OnDriftOption = Annotated[
    str,
    typer.Option(
        metavar="refuse|keep|overwrite", help="What happens to what was changed on the fleet since the last apply."
    ),
]


@app.command("init")
def init(
    name: Annotated[str, typer.Argument(help="The project's name, and its new folder's.")],
    json_mode: JsonOption = False,
) -> None:
    """Make a project: a folder with an agent, a skill and a trigger, which can be applied as it is."""
    made = make_project(Path.cwd() / name, name)
    out = Output(json_mode=json_mode)
    out.done(
        {"dir": str(made.root), "files": made.files},
        "\n".join(f"made {name}/{file}" for file in made.files),
        about=f"Next: cd {name}, then `nova plan` and `nova apply`, with a fleet that `nova up` runs.",
    )


@remote(app, "plan")
async def plan(
    session: Session,
    *,
    directory: DirectoryOption = Path(),
    prune: PruneOption = False,
    on_drift: OnDriftOption = "refuse",
    check: Annotated[
        bool, typer.Option("--check", help=f"Exit with {EXIT_PENDING} if there is something to do.")
    ] = False,
) -> None:
    """Show what applying the project would change on the fleet. Changes nothing."""
    files = await _read(directory)
    body = files.request(prune=prune, on_drift=_on_drift(on_drift))
    found = await send_project(session, files, body, "plan")
    session.out.write(found, show_plan)
    _note_drift(session, found)
    for line in _missing_lines(found, files) if found.missing else ():
        session.out.note(line, "magenta")
    _note_gates(session, found, files)
    if check and found.steps:
        raise typer.Exit(EXIT_PENDING)


@remote(app, "apply")
async def apply(
    session: Session,
    *,
    directory: DirectoryOption = Path(),
    prune: PruneOption = False,
    on_drift: OnDriftOption = "refuse",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Apply without a question.")] = False,
    allow_missing: Annotated[
        bool,
        typer.Option("--allow-missing", help="Apply although no live worker has tools or code that agents need."),
    ] = False,
) -> None:
    """Make the fleet what the project says, in one transaction: all of it, or nothing.

    Agents that evaluations.yaml names are evaluated before. One that does not pass stays as it is, and the exit code
    is 5.
    """
    files = await _read(directory)
    body = files.request(prune=prune, on_drift=_on_drift(on_drift), allow_missing=allow_missing)
    found = await send_project(session, files, body, "plan")
    if not session.out.json:
        show_plan(session.out, found)
    _note_gates(session, found, files)
    if found.refused:
        raise Conflict(
            "Nothing was applied: the fleet has changes of its own. Take them over with `nova pull`, or decide with "
            "--on-drift keep or --on-drift overwrite."
        )
    if found.missing and not allow_missing:
        raise Conflict("\n".join(_missing_lines(found, files)))
    held: list[HeldBack] = []
    if found.steps:
        if not yes and not _confirmed(session):
            raise InvalidInput("Nothing was applied. Give --yes to apply without a question.")
        found, held = await _apply(session, files, body, found)
    if session.out.json:
        session.out.document(found)
    if held:
        session.out.note(refusal_of(held), "red")
        raise typer.Exit(EXIT_HELD_BACK)


@remote(app, "pull")
async def pull(
    session: Session,
    *,
    directory: DirectoryOption = Path(),
    everything: Annotated[
        bool, typer.Option("--all", help="All agents, skills and triggers of the tenant, not the project's only.")
    ] = False,
) -> None:
    """Write what the fleet has now into the project's files. Equal files stay as they are."""
    files = await _read(directory)
    if files.problems:
        raise InvalidInput("\n".join(files.problems))
    try:
        written = await pull_items(session.client, files, everything=everything)
    except Rejected as error:
        raise _placed(error, files) from error
    session.out.done(
        {"written": written},
        "\n".join(f"wrote {each}" for each in written) or "Nothing to write: the files are as the fleet is.",
    )


async def _apply(
    session: Session, files: ProjectFiles, body: ProjectApply, found: ProjectPlan
) -> tuple[ProjectPlan, list[HeldBack]]:
    """Apply a plan, without the agents that do not pass their evaluations."""
    held = await evaluate_changes(session, found, files.gates, keeps_drift=body.on_drift == "keep")
    if held:
        body = body.model_copy(update={"hold": tuple(each.agent for each in held)})
        found = await send_project(session, files, body, "plan")
    if found.steps:
        body = body.model_copy(update={"expect": found.digest})
        found = await send_project(session, files, body, "apply")
    if not session.out.json:
        session.out.text(summary(found))
    return found, held


async def _read(directory: Path) -> ProjectFiles:
    return await asyncio.to_thread(lambda: read_project(find_root(directory)))


async def send_project(
    session: Session, files: ProjectFiles, body: ProjectApply, verb: Literal["plan", "apply"]
) -> ProjectPlan:
    """Plan or apply a project.

    Raises:
        Rejected: The fleet refuses it; with the file and line of the field that it names.
    """
    projects = session.client.projects
    try:
        return await (projects.apply(body) if verb == "apply" else projects.plan(body))
    except Rejected as error:
        raise _placed(error, files) from error


def _placed(error: Rejected, files: ProjectFiles) -> Rejected:
    """Return a refusal with the file and line of the field that it names."""
    place = files.place_of(_field_of(error))
    return error if place is None else type(error)(f"{place}: {error.message}", **error.fields)


def _field_of(error: Rejected) -> str:
    """Return the field that a refusal of the fleet names; empty for one that names none."""
    named: Any = error.fields.get("errors") or [error.fields]
    return str(named[0].get("field", ""))


def _missing_lines(found: ProjectPlan, files: ProjectFiles) -> Iterator[str]:
    """Yield a line for each agent that needs what no live worker has, with its place, and one with what to do."""
    for each in found.missing:
        place = files.place_of(f"agents.{each.agent}") or each.agent
        yield f"{place}: no live worker has {', '.join(each.needs)}"
    yield (
        "Applying this is refused: start workers with the project first (`nova build`, `nova worker --project`), or "
        "give --allow-missing, and runs wait for them."
    )


def _on_drift(word: str) -> OnDrift:
    if word not in {"refuse", "keep", "overwrite"}:
        raise InvalidInput(f"--on-drift: {word!r} is not 'refuse', 'keep' or 'overwrite'.")
    return cast("OnDrift", word)


def _note_gates(session: Session, found: ProjectPlan, files: ProjectFiles) -> None:
    for line in describe_gates(found, files.gates):
        session.out.note(line)


def _note_drift(session: Session, found: ProjectPlan) -> None:
    if found.refused:
        session.out.note(
            "The fleet has changes of its own, so applying this is refused: take them over with `nova pull`, or decide "
            "with --on-drift keep or --on-drift overwrite.",
            "magenta",
        )


def _confirmed(session: Session) -> bool:
    return session.out.tty and typer.confirm("Apply?", err=True)
