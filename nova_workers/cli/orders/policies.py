"""`nova orders policies`: list, show, check, store and remove what work orders are bound by."""

from typing import Annotated

import typer
import yaml

from nova_workers.cli.command import Session, remote
from nova_workers.cli.orders.documents import read_document
from nova_workers.cli.terminal.output import JsonOption, Output, stamp
from nova_workers.cli.terminal.paging import CursorOption, LimitOption, show_page
from nova_workers.contracts.http.order_policies import PolicyInfo, PolicyPut
from nova_workers.domain.orders.rules.policies.parsing import parse_policy

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="List, show, check, store and remove policies of work orders.",
)

PolicyArgument = Annotated[str, typer.Argument(metavar="POLICY", help="The policy's id.")]
FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="YAML or JSON. - reads stdin.")]


@remote(app, "list")
async def list_policies(session: Session) -> None:
    """List the policies that apply: built-in ones and the tenant's own."""
    page = await session.client.work_order_policies.list()
    show_page(session.out, page, ("policy", "version", "from", ("description", "fold")), _row, nothing="No policies.")


@remote(app, "show")
async def show(
    session: Session,
    policy: PolicyArgument,
    version: Annotated[str | None, typer.Option("--version", help="An earlier version.")] = None,
) -> None:
    """Print a policy, as a file that `set` takes."""
    view = await session.client.work_order_policies.get(policy, version=version)
    if session.out.json:
        session.out.document(view)
    else:
        session.out.text(yaml.safe_dump(view.document, sort_keys=False, allow_unicode=True).rstrip("\n"))


@app.command("check")
def check(file: FileArgument, json_mode: JsonOption = False) -> None:
    """Check a file without any server: every error with its path."""
    policy = parse_policy(read_document(file))
    out = Output(json_mode=json_mode)
    if json_mode:
        out.document(policy.to_wire())
    else:
        out.text(f"{policy.id} {policy.version}: {len(policy.roles)} roles, produces {policy.produces}")


@remote(app, "set")
async def set_policy(session: Session, file: FileArgument) -> None:
    """Store a policy as its newest version. Orders are bound by it from now on."""
    document = read_document(file)
    policy = parse_policy(document)
    view = await session.client.work_order_policies.put(policy.id, PolicyPut(document=document))
    if session.out.json:
        session.out.document(view)
    else:
        session.out.text(f"{view.id} {view.version}")


@remote(app, "remove")
async def remove(session: Session, policy: PolicyArgument) -> None:
    """Delete the tenant's policy with its versions. A built-in one with its id applies again."""
    await session.client.work_order_policies.delete(policy)
    if session.out.json:
        session.out.document({"removed": policy})
    else:
        session.out.text(f"removed {policy}")


@remote(app, "versions")
async def versions(
    session: Session, policy: PolicyArgument, limit: LimitOption = 50, cursor: CursorOption = None
) -> None:
    """List the tenant's versions of a policy, newest first."""
    page = await session.client.work_order_policies.versions(policy, limit=limit, cursor=cursor)
    show_page(
        session.out,
        page,
        ("version", "made", ("description", "fold")),
        lambda info: (info.version, stamp(info.created_at), info.description),
        nothing="The tenant has no versions of it.",
    )


def _row(info: PolicyInfo) -> tuple[str, ...]:
    return info.id, info.version, "the fleet" if info.built_in else "the tenant", info.description
