"""Workers as `nova fleet drain` takes them: by their id, or by host and process as tables show them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import typer

from nova_workers.cli.operations.fleet import worker_named
from nova_workers.contracts.http.fleet import WorkerView


def _worker(id_: str, host: str, pid: int) -> WorkerView:
    seen_at = datetime(2026, 11, 29, tzinfo=UTC)
    return WorkerView(
        id=id_, host=host, pid=pid, queues=["interactive"], slots=4, busy=0, draining=False, seen_at=seen_at
    )


def test_a_worker_has_its_id_and_its_host_and_process_for_names() -> None:
    one, other = _worker("wkr_1@host-a:7", "host-a", 7), _worker("wkr_2@host-b:7", "host-b", 7)
    assert worker_named("wkr_1@host-a:7", [one, other]) is one
    assert worker_named("host-b:7", [one, other]) is other
    assert worker_named("host-a", [one, other]) is None


def test_a_name_that_several_workers_have_is_refused_with_their_ids() -> None:
    twins = [_worker("wkr_1@app:1", "app", 1), _worker("wkr_2@app:1", "app", 1)]
    with pytest.raises(typer.BadParameter, match="wkr_1@app:1, wkr_2@app:1"):
        worker_named("app:1", twins)
    assert worker_named("wkr_2@app:1", twins) is twins[1]
