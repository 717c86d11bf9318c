"""What a durable step of an agent in Python costs, in its worker and its process together."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.bench.figures import Figure, Result
from tests.bench.machine import cpu_s
from tests.bench.stage import Bench, Stage
from tests.support.processes.inspection import command_lines, descendants

_CODE = '''
from nova_workers.sdk import Context, Message, agent

@agent
async def steps(ctx: Context, message: Message) -> str:
    """Do as many steps as the message says."""
    for number in range(int(message.text)):
        await ctx.step("one", int, number)
    return "done"
'''
_MOST_MS = 2.0
_ROUNDS = 3


async def measure_code(bench: Bench) -> Result:
    """Compare a run of many steps with one of a single step, each several times."""
    many = bench.sizes.code_steps
    with tempfile.TemporaryDirectory(prefix="nova-bench-") as folder:
        (Path(folder) / "code").mkdir()
        (Path(folder) / "code" / "bench.py").write_text(_CODE, encoding="utf-8")
        project = {"name": "bench", "folder": folder, "tenant": "*"}
        async with bench.stage(env={"NOVA_TOOLS__PROJECTS": json.dumps([project])}) as stage:
            agent = {"id": "stepper", "name": "Stepper", "engine": "code", "engine_config": {"agent": "bench:steps"}}
            made = await stage.client.post("/v1/agents", agent)
            assert made.status == 201, made.body
            await _used_ms(stage, 1)
            spent = [[(await _used_ms(stage, number)) for number in (1, many)] for _ in range(_ROUNDS)]
    worker, child = (min((of[1][at] - of[0][at]) / (many - 1) for of in spent) for at in (0, 1))
    return Result(
        "code",
        "CPU of a durable step of an agent in Python, worker and process together",
        (
            Figure("a step", worker + child, "ms", bound=_MOST_MS),
            Figure("of it in the worker", worker, "ms"),
            Figure("in the process of the code", child, "ms"),
        ),
        notes=(f"A run of {many} steps less one of a single step; the best of {_ROUNDS}. Postgres is not counted.",),
    )


async def _used_ms(stage: Stage, steps: int) -> tuple[float, float]:
    """Return what a run of so many steps used in the worker and in the process of its code."""
    before = _cpu_ms(stage)
    answer = await stage.client.post("/v1/runs/wait", {"agent_id": "stepper", "message": str(steps)})
    assert b'"status":"succeeded"' in answer.body, answer.body
    after = _cpu_ms(stage)
    return after[0] - before[0], after[1] - before[1]


def _cpu_ms(stage: Stage) -> tuple[float, float]:
    below = command_lines(descendants(stage.worker.pid))
    processes = [pid for pid, line in below.items() if "sdk.serve" in line and "child_supervisor" not in line]
    return cpu_s(stage.worker.pid) * 1_000, sum(map(cpu_s, processes)) * 1_000
