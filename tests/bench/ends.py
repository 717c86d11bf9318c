"""The end of a run that no model executed, as the benches of single statements write it."""

from nova_workers.contracts.runs import Finish

PLAIN_END = Finish(
    status="succeeded",
    stop_reason="end_turn",
    text="You said: And again?",
    engine="scripted",
    model="scripted",
    provider="scripted",
    duration_ms=1,
    final_event_id="1-3",
)
