"""What a project takes: from `nova init` to the first answer in `nova dev`, and `nova plan` over many agents."""

import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from nova_workers.devstack.first_start import KEY_FILE
from tests.bench.figures import Figure, Result
from tests.bench.http import LoadClient
from tests.bench.installed import installed_environment, running_up
from tests.bench.machine import cpu_s
from tests.bench.stage import Bench, Stage
from tests.support.processes.fleet import free_port
from tests.support.waiting import until

_FIRST_ANSWER_S = 30.0
_PLAN_S = 2.0
_TIMEOUT_S = 120.0
_AGENT = "assistant"
"""Of a new project."""


async def measure_init(bench: Bench) -> Result:
    """Make a project, start `nova dev` in it and ask its agent: on an empty home, then on one with earlier data."""
    with tempfile.TemporaryDirectory(prefix="nova-bench-") as folder:
        took_s = [await _first_answer_s(Path(folder), f"shop-{number}") for number in range(bench.sizes.inits)]
    return Result(
        "init",
        "`nova init` to the first answer in `nova dev`",
        (
            Figure("with data of an earlier start", min(took_s[1:], default=took_s[0]), "s", bound=_FIRST_ANSWER_S),
            Figure("on an empty home", took_s[0], "s"),
        ),
        notes=(
            "With the scripted engine in place of a model: from the start of the command `nova init` until the answer "
            "of the project's agent, for which is asked all the time.",
        ),
    )


async def measure_plan(bench: Bench) -> Result:
    """Plan a project of many agents by the command line, before and after it is applied."""
    number, rounds = bench.sizes.planned_agents, bench.sizes.plans
    with tempfile.TemporaryDirectory(prefix="nova-bench-") as folder:
        root = Path(folder) / "shop"
        await _nova(Path(folder), {}, "init", root.name)
        agents = root / "agents"
        (one,) = agents.glob(f"{_AGENT}.*")
        text = one.read_text(encoding="utf-8")
        for each in range(1, number):
            other = text.replace("name: Assistant", f"name: Assistant {each}")
            (agents / f"{_AGENT}-{each}{one.suffix}").write_text(other, encoding="utf-8")
        async with bench.stage() as stage:
            fleet = {"NOVA_API_URL": stage.fleet.api_url, "NOVA_API_KEY": stage.fleet.api_key}
            new = [await _planned(stage, root, fleet) for _ in range(rounds)]
            applied_s = await _nova(root, fleet, "apply", "--yes")
            same = [await _planned(stage, root, fleet) for _ in range(rounds)]
    return Result(
        "plan",
        f"`nova plan` over {number} agents",
        (
            Figure("nothing has changed", min(took_s for took_s, _ in same), "s", bound=_PLAN_S),
            Figure("all are new", min(took_s for took_s, _ in new), "s", bound=_PLAN_S),
            Figure("`nova apply` of all", applied_s, "s"),
            Figure("CPU of the first", min(cpu_s for _, cpu_s in same), "s"),
            Figure("of the second", min(cpu_s for _, cpu_s in new), "s"),
        ),
        notes=(
            f"Whole commands, with the start of their process; the best of {rounds}. The CPU is that of command "
            "and API, without Postgres.",
        ),
        details={"same": same, "new": new},
    )


async def _planned(stage: Stage, root: Path, fleet: Mapping[str, str]) -> tuple[float, float]:
    """Return how long a plan takes, and the CPU time of the command and of the API, in seconds."""
    assert stage.fleet.api is not None
    api, before = stage.fleet.api.pid, resource.getrusage(resource.RUSAGE_CHILDREN)
    api_s = cpu_s(api)
    took_s = await _nova(root, fleet, "plan")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    command_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took_s, command_s + cpu_s(api) - api_s


async def _first_answer_s(folder: Path, project: str) -> float:
    home, root = folder / "home", folder / project
    began_s = time.perf_counter()
    await _nova(folder, {"NOVA_HOME": str(home)}, "init", project)
    # `nova dev` applies the project by the address in the settings, as long as the fleet is not up.
    settings = {"NOVA_DEFAULT_ENGINE": "scripted", "NOVA_API__PORT": str(free_port())}
    async with running_up(home, settings, command=("dev", "--dir", str(root))) as (state, _):
        client = LoadClient(state.api_url, (home / KEY_FILE).read_text(encoding="ascii").strip())
        try:
            # The project is applied once the fleet is up.
            await until(lambda: _is_answered(client), "the first answer", timeout_s=_TIMEOUT_S)
            return time.perf_counter() - began_s
        finally:
            client.close()


async def _is_answered(client: LoadClient) -> bool:
    answer = await client.post("/v1/runs/wait", {"agent_id": _AGENT, "message": "Hello"})
    return answer.status == 200 and b'"status":"succeeded"' in answer.body


async def _nova(folder: Path, given: Mapping[str, str], *words: str) -> float:
    """Return how long a command takes in a folder."""
    began_s = time.perf_counter()
    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "nova_workers.cli", *words),
        env=installed_environment(given),
        cwd=folder,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(_TIMEOUT_S):
        _, problems = await command.communicate()
    assert command.returncode == 0, problems.decode()
    return time.perf_counter() - began_s
