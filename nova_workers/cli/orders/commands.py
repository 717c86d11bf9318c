"""`nova orders`: work orders, their policies and secrets, and the contract for programs in other languages."""

from typing import Annotated

import orjson
import typer

from nova_workers.cli.orders import policies, secrets, work_orders
from nova_workers.cli.resources import group
from nova_workers.contracts.orders.definitions import json_schema, typescript

app = group("Work orders, their policies and secrets.")
app.add_typer(work_orders.app)
app.add_typer(policies.app, name="policies")
app.add_typer(secrets.app, name="secrets")


@app.command("contract")
def contract(
    as_typescript: Annotated[bool, typer.Option("--typescript", help="TypeScript instead of JSON Schema.")] = False,
) -> None:
    """Print the contract of orders and results, as JSON Schema or TypeScript."""
    typer.echo(
        typescript() if as_typescript else orjson.dumps(json_schema(), option=orjson.OPT_INDENT_2).decode() + "\n",
        nl=False,
    )
