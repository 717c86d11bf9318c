"""What follows the runs of agents at the help desk."""

import json
import urllib.request

from nova_workers.sdk import EndedRun, ToolContext, effect


@effect(timeout_s=20)
def log_run(run: EndedRun, context: ToolContext) -> None:
    """Record the end of a run at the desk."""
    # Under its key, so that a repetition replaces the record instead of adding one.
    address = f"{context.secret('DESK_URL')}/records/{context.idempotency_key}"
    record = {"agent": run.agent_id, "run": run.run_id, "status": run.status, "text": run.text}
    request = urllib.request.Request(
        address,
        data=json.dumps(record).encode(),
        headers={"authorization": f"Bearer {context.secret('DESK_TOKEN')}", "content-type": "application/json"},
        method="PUT",
    )
    with urllib.request.urlopen(request, timeout=min(context.time_left_s, 15)):
        context.log.info("recorded")
