"""`nova orders policies`: list, show, check, store and delete what work orders are bound by."""

from typing import Annotated

import typer
import yaml

from nova_workers.cli.command import Session, remote
from nova_workers.cli.orders.documents import read_document
from nova_workers.cli.resources import Argument, deletion, group, listing
from nova_workers.cli.terminal.output import JsonOption, Output
from nova_workers.cli.terminal.paging import Column, Rows, show_page
from nova_workers.contracts.http.order_policies import PolicyInfo, PolicyPut
from nova_workers.domain.orders.rules.policies.parsing import parse_policy

app = group("List, show, check, store and delete policies of work orders.")

PolicyArgument = Annotated[str, typer.Argument(metavar="POLICY", help="The policy's id.")]
FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="YAML or JSON. - reads stdin.")]


_ROWS = Rows[PolicyInfo](
    "No policies.",
    Column("policy", lambda info: info.id),
    Column("version", lambda info: info.version),
    Column("from", lambda info: "the fleet" if info.built_in else "the tenant"),
    Column("description", lambda info: info.description, "fold"),
)


@remote(app, "list")
async def list_policies(session: Session) -> None:
    """List the policies that apply: built-in ones and the tenant's own."""
    show_page(session.out, await session.client.work_order_policies.list(), _ROWS)


@remote(app, "show")
async def show(
    session: Session,
    policy: PolicyArgument,
    version: Annotated[str | None, typer.Option("--version", help="An earlier version.")] = None,
) -> None:
    """Print a policy, as a file that `set` takes."""
    view = await session.client.work_order_policies.get(policy, version=version)
    text = yaml.safe_dump(view.document, sort_keys=False, allow_unicode=True)
    session.out.done(view, text.rstrip("\n"))


@app.command("check")
def check(file: FileArgument, json_mode: JsonOption = False) -> None:
    """Check a file without any server: every error with its path."""
    policy = parse_policy(read_document(file))
    sentence = f"{policy.id} {policy.version}: {len(policy.roles)} roles, produces {policy.produces}"
    Output(json_mode=json_mode).done(policy.to_wire(), sentence)


@remote(app, "set")
async def set_policy(session: Session, file: FileArgument) -> None:
    """Store a policy as its newest version. Orders are bound by it from now on."""
    document = read_document(file)
    policy = parse_policy(document)
    view = await session.client.work_order_policies.put(policy.id, PolicyPut(document=document))
    session.out.done(view, f"{view.id} {view.version}")


deletion(
    app,
    "Delete policies of the tenant with their versions. A built-in one with the id applies again.",
    "policies: Ids of policies.",
    lambda nova: nova.work_order_policies.delete,
    once="remove",
)
listing(
    app,
    "List the tenant's versions of a policy, newest first.",
    lambda nova: nova.work_order_policies.versions,
    Rows[PolicyInfo](
        "The tenant has no versions of it.",
        Column("version", lambda info: info.version),
        Column("made", lambda info: info.created_at),
        Column("description", lambda info: info.description, "fold"),
    ),
    name="versions",
    of=Argument("policy", PolicyArgument),
)
