"""The demo's work order: another program asks for a text, under a policy, and asks again."""

import time

from rich.console import Console
from rich.rule import Rule

from nova_workers.base.errors import Unavailable
from nova_workers.cli.demo.watch import ms_since
from nova_workers.cli.terminal.output import printable
from nova_workers.client.client import NovaClient
from nova_workers.contracts.orders import AiWorkResultV1, CopyProposalArtifact, EngineTrace, build_order

_HEADLINE = "Stop carrying the system in your head"


async def show_order(console: Console, client: NovaClient) -> None:
    """Submit a work order twice, and show its result.

    Raises:
        Unavailable: It did not succeed, or was executed twice.
    """
    console.print()
    console.print(Rule("A work order: another program asks, under a policy", align="left", style="cyan"))
    # The first policy that shows one proposal.
    policies = [
        await client.work_order_policies.get(each.id) for each in (await client.work_order_policies.list()).items
    ]
    policy_id = next(each.id for each in policies if each.document["presentation"]["default"] == "single_best")
    secret = (await client.work_order_secrets.create()).secret
    order = build_order(
        secret,
        tenant=(await client.tenants.get()).id,
        scope="demo.copy",
        policy_id=policy_id,
        inputs={"targetSection": "hero", "currentCopy": {"headline": _HEADLINE}},
        trace=EngineTrace(job_id="demo"),
    )
    console.print(f"[bold]program[/]  a better headline than {_HEADLINE!r}, by the policy {policy_id}")
    began_s = time.monotonic()
    first = await client.work_orders.submit(order)
    first_ms = ms_since(began_s)
    _show(console, first)
    began_s = time.monotonic()
    again = await client.work_orders.submit(order)
    if again.trace_id != first.trace_id:
        raise Unavailable(f"Equal orders were executed twice: {first.trace_id} and {again.trace_id}.")
    console.print(
        f"     {first.stop_reason} after {first_ms:.0f} ms · the same order again: its result after "
        f"{ms_since(began_s):.0f} ms, without a model call",
        style="dim",
    )


def _show(console: Console, result: AiWorkResultV1) -> None:
    for artifact in result.artifacts:
        if isinstance(artifact, CopyProposalArtifact):
            payload = artifact.payload
            console.print(
                f"     {printable(payload.target_key)}: {printable(str(payload.value))}", style="green", markup=False
            )
    if result.stop_reason != "ok":
        raise Unavailable(f"The work order {result.trace_id} ended with {result.stop_reason!r}.")
