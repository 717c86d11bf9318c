"""The registry of scenarios: each is a function that makes a fault, and returns when it is removed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

from tests.chaos.runner.fleet import ChaosFleet, Member, Role

PATIENCE_S = 120
"""How long the connections that make faults may take. Short times would judge the machine, and not the fleet."""

Target = Literal["workers", "apis", "beats", "console", "outside", "postgres", "redis", "network", "queues", "tenants"]


@dataclass
class Stage:
    """What a scenario acts on.

    Attributes:
        fleet: All processes and links.
        rng: Every choice comes from it, so that a seed repeats the schedule.
        said: What the schedule prints beside the name.
    """

    fleet: ChaosFleet
    rng: random.Random
    said: list[str] = field(default_factory=list[str])

    @property
    def lease_s(self) -> float:
        """The time after which a silent worker is lost."""
        return self.fleet.leases.lease_s

    def say(self, detail: str) -> None:
        """Add a detail to the schedule."""
        self.said.append(detail)

    def any_of(self, role: Role) -> Member:
        """Choose a process."""
        member = self.rng.choice(self.fleet.of_role(role))
        self.say(member.name)
        return member

    async def hold(self, least_s: float, most_s: float | None = None) -> None:
        """Let a fault last for a time."""
        seconds = least_s if most_s is None else self.rng.uniform(least_s, most_s)
        self.say(f"{seconds:.1f} s")
        await asyncio.sleep(seconds)


Act = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True)
class Scenario:
    """A fault.

    Attributes:
        name: Of its function.
        says: The first line of its docstring.
        act: Makes it, and returns when it is removed.
        touches: What no other scenario may touch at the same time.
        proves: The invariants that it is most likely to break; all are checked always.
        in_mix: Whether the random mix has it.
        is_brief: Whether it fits into a run of a minute.
        breaks: False for a mere load, during which all bounds hold.
    """

    name: str
    says: str
    act: Act
    touches: frozenset[Target]
    proves: tuple[str, ...]
    in_mix: bool
    is_brief: bool
    breaks: bool


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    *touches: Target, proves: tuple[str, ...], in_mix: bool = True, is_brief: bool = True, breaks: bool = True
) -> Callable[[Act], Act]:
    """Register a function as a scenario."""

    def register(act: Act) -> Act:
        name = getattr(act, "__name__", "")
        says = (act.__doc__ or "").strip().splitlines()[0]
        SCENARIOS[name] = Scenario(name, says, act, frozenset(touches), proves, in_mix, is_brief, breaks)
        return act

    return register
