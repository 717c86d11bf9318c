"""``make chaos``: break a fleet for a while, and check that every promise held.

    python -m tests.chaos.runner --seconds 600 --seed 7
    python -m tests.chaos.runner --scenario kill_worker --scenario empty_valkey
    python -m tests.chaos.runner --list

Exit status 1 on any violation, 2 if a fault could not be made. Everything listens on loopback, and every process ends
with this one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.runner.campaign import Campaign, Outcome
from tests.chaos.runner.fleet import Leases
from tests.chaos.runner.report import evidence, report
from tests.chaos.runner.scenarios import SCENARIOS
from tests.chaos.runner.scenarios.table import PAGE, scenario_table, table_of
from tests.chaos.runner.workload import Pace


def main() -> int:
    """Run, print, and return the exit status."""
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument("--seconds", type=float, default=600.0, help="of random faults")
    parser.add_argument("--seed", type=int, default=None, help="of all choices; random if left out")
    parser.add_argument("--scenario", action="append", choices=sorted(SCENARIOS), help="only this one; may be repeated")
    parser.add_argument("--rounds", type=int, default=1, help="how often each of the named scenarios is made")
    parser.add_argument("--short-leases", action="store_true", help="leases of 6 s, not 30 s")
    parser.add_argument("--keep", type=Path, help="a folder for record and logs, which stays")
    parser.add_argument("--list", action="store_true", help="list scenarios")
    parser.add_argument("--write-table", action="store_true", help="write the list into docs/chaos.md")
    given = parser.parse_args()
    if given.list:
        print(scenario_table())
        return 0
    if given.write_table:
        text = PAGE.read_text("utf-8")
        PAGE.write_text(text.replace(table_of(text), scenario_table()), "utf-8")
        return 0
    for name in [name for name in os.environ if name.startswith(("NOVA_", "ANTHROPIC_"))]:
        del os.environ[name]
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    home = given.keep or Path(tempfile.mkdtemp(prefix="nova-chaos-"))
    home.mkdir(parents=True, exist_ok=True)
    print(f"seed {seed}, record and logs in {home}", flush=True)
    outcome = asyncio.run(_run(given, home, seed))
    print(report(outcome), flush=True)
    if outcome.violations:
        found = home / "violations.txt"
        found.write_text(evidence(outcome))
        print(f"every line and row of evidence: {found}")
    if not outcome.violations and given.keep is None:
        shutil.rmtree(home, ignore_errors=True)
    if outcome.violations:
        return 1
    return 2 if any(fault.failed for fault in outcome.history.faults) else 0


async def _run(given: argparse.Namespace, home: Path, seed: int) -> Outcome:
    leases = Leases.short() if given.short_leases else Leases()
    chosen = [SCENARIOS[name] for _ in range(given.rounds) for name in given.scenario or ()]
    among = chosen or [each for each in SCENARIOS.values() if each.in_mix]
    own_disk = any(each.name == "postgres_disk_full" for each in among)
    campaign = Campaign(home, seed, leases, Pace(), own_disk=own_disk)
    return await (campaign.scenarios(chosen) if chosen else campaign.mix(given.seconds, among))


if __name__ == "__main__":
    sys.exit(main())
