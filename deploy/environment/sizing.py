"""Reckons what a fleet needs for a load, from the figures that the documents have as measured.

`python deploy/environment/sizing.py --turns-per-s 50 --seconds 8` prints it for one load. With `--write`, as `make
format` does, it writes docs/deploy/sizing.md; with `--check` it fails if that page differs.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = DOCS / "deploy" / "sizing.md"

_SHARE: Final = 0.6
"""Of a core, and of the slots of a worker, that the load may take: the rest is for bursts and for a lost process."""
_LEAST_PROCESSES: Final = 2
"""Of each kind, so that the end of one stops nothing."""
_SLOTS: Final = 1_024
"""Of a worker by default, which is also the most that the bench has measured."""
_BYTES_PER_TOKEN: Final = 4
_COPIES_OF_TEXT: Final = 3
"""A text is in its message, in the search by words, and about once more in the index of parts of words."""
_DAY_S: Final = 86_400
_EVENTS_KEPT_S: Final = 3_600

_LOADS: Final = tuple((turns_per_s, seconds) for turns_per_s in (10.0, 100.0, 1000.0) for seconds in (2.0, 20.0))

_HEAD: Final = """# Sizing

How many processes, connections and gigabytes a load needs. `make format` writes this page by
`deploy/environment/sizing.py`, from figures that the commands of this repository have printed, and the same program
reckons yours:

```sh
python deploy/environment/sizing.py --turns-per-s 50 --seconds 8
```

The loads are turns that begin each second, in the mean of the busiest minute, and how long a turn takes, which is
mostly the time of its model.

"""

_TAIL: Final = """
- A worker has 1,024 slots (`NOVA_WORKER__CONCURRENCY`). A turn that waits for its model takes a slot and little CPU:
  long turns need slots, many turns need cores.
- *Cores* are of all processes and both servers. Postgres alone has the ones in its column.
- *Connections* are the most that these processes open. Above some hundreds raise `max_connections` of Postgres, or
  put [PgBouncer](../operations.md#connections) before it.
- *Memory* is that of the fleet's processes. What Postgres needs was not measured: it is fast while the indexes of
  what is read fit.
- *Disk a day* is at this rate all day, before deletion: threads stay [until a policy of an agent deletes
  them](../operations.md#what-is-kept). Backups come on top.

## Measured

| figure | is | from |
| --- | --- | --- |
"""

_ASSUMED: Final = """
These are of machines with two cores and everything on them, at 17 turns a second (soak) and 176 (bench), with the
scripted engine and short texts. **Loads above that were not measured**: the table takes costs a turn as constant,
which [Growth](../growth.md) shows for the size of the ledger and [Scaling out](../performance.md#scaling-out) for up
to eight workers, and no more. Cores differ by a factor of two.

## Assumed

- A core and the slots of a worker are used to 60 %, and each kind of process is there twice.
- A turn calls its model twice (`--model-calls`), and each call costs worker and Postgres as much as a whole turn of
  the bench. That is more than it costs, since a run is claimed and finished once.
- A turn has 500 tokens of text (`--tokens`) of 4 bytes, which are stored three times: in the message, and in two
  search indexes.
- Each turn has a client that follows it. Question and answer get a vector each, from the local model; with
  `NOVA_EFFECTS__EMBEDDING_PROVIDER=off` there are none.
- All processes and both servers are in one region, with less than 1 ms between them.
- Tools of agents are not in it. A shell or a compiler that an agent runs needs cores and memory of its own.

Measure before you rely on it: `make bench ARGS="--only turns"` prints the CPU a turn of your machine, and [these
metrics](../performance.md#measuring-your-own) show when a process is full.
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """What the documents have as measured. CPU is in milliseconds a turn, memory in MB, stored rows in bytes."""

    api_cpu_ms: float
    worker_cpu_ms: float
    embeddings_cpu_ms: float
    postgres_cpu_ms: float
    valkey_cpu_ms: float
    api_mb: float
    worker_mb: float
    turn_mb: float
    run_bytes: float
    message_bytes: float
    turn_bytes: float
    vector_bytes: float
    events_bytes: float
    api_connections: tuple[int, int]
    worker_connections: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Load:
    """A load of a fleet.

    Attributes:
        seconds: How long a turn takes.
        model_calls: Of a turn.
        tokens: Of text that a turn adds to its conversation.
    """

    turns_per_s: float
    seconds: float
    model_calls: float = 2.0
    tokens: float = 500.0


@dataclass(frozen=True, slots=True)
class Needs:
    """What a load needs."""

    workers: int
    apis: int
    cores: int
    postgres_cores: int
    postgres_connections: int
    redis_connections: int
    memory_gb: float
    redis_gb: float
    disk_gb_a_day: float


def measured() -> Figures:
    """Return the figures of the documents.

    Raises:
        ValueError: A page does not have a figure as it had.
    """
    performance = (DOCS / "performance.md").read_text("utf-8")
    operations = (DOCS / "operations.md").read_text("utf-8")
    cpu = _numbers(
        performance,
        r"CPU a turn: load generator \S+ ms, api (\S+) ms, worker (\S+) ms, embeddings (\S+) ms, beat \S+ ms, "
        r"postgres (\S+) ms, valkey (\S+) ms",
    )
    (worker_mb,) = _numbers(performance, r"\| memory of the worker \| (\d+) MB")
    (api_mb,) = _numbers(performance, r"\| memory of the API, beat, the console, Flower \| (\d+),")
    (turn_mb,) = _numbers(performance, r"\| memory per in-flight turn [^|]*\|[^|]*\| (\S+) MB")
    rows = _numbers(performance, r"\| bytes a row of runs, messages, turns \| ([\d,]+), (\d+), ([\d,]+) \|")
    (vector_bytes,) = _numbers(performance, r"\| bytes a row of embeddings[^|]*\| ([\d,]+) \|")
    (events_bytes,) = _numbers(performance, r"\| memory of Redis a run with live events \| ([\d,]+) bytes")
    api = _numbers(operations, r"^\| API \| (\d+):[^|]*\| (\d+) ")
    worker = _numbers(operations, r"^\| worker \| (\d+):[^|]*\| (\d+):")
    return Figures(
        *cpu,
        api_mb=api_mb,
        worker_mb=worker_mb,
        turn_mb=turn_mb,
        run_bytes=rows[0],
        message_bytes=rows[1],
        turn_bytes=rows[2],
        vector_bytes=vector_bytes,
        events_bytes=events_bytes,
        api_connections=(int(api[0]), int(api[1])),
        worker_connections=(int(worker[0]), int(worker[1])),
    )


def _numbers(text: str, pattern: str) -> list[float]:
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise ValueError(f"no page has {pattern!r}: change sizing.py with the page that lost it")
    return [float(number.replace(",", "")) for number in found.groups()]


def needs(load: Load, figures: Figures) -> Needs:
    """Return what a load needs."""
    turns, calls = load.turns_per_s, load.turns_per_s * load.model_calls
    in_flight = turns * load.seconds
    by_cpu = max(_LEAST_PROCESSES, _processes(calls * figures.worker_cpu_ms))
    workers = max(by_cpu, ceil(in_flight / (_SLOTS * _SHARE)))
    apis = max(_LEAST_PROCESSES, _processes(turns * figures.api_cpu_ms))
    of_turns_ms = figures.api_cpu_ms + figures.embeddings_cpu_ms + figures.valkey_cpu_ms
    of_calls_ms = figures.worker_cpu_ms + figures.postgres_cpu_ms
    (api_postgres, api_redis), (worker_postgres, worker_redis) = figures.api_connections, figures.worker_connections
    return Needs(
        workers=workers,
        apis=apis,
        cores=_processes(turns * of_turns_ms + calls * of_calls_ms),
        postgres_cores=_processes(calls * figures.postgres_cpu_ms),
        postgres_connections=apis * api_postgres + workers * worker_postgres,
        redis_connections=apis * api_redis + workers * worker_redis,
        memory_gb=(workers * figures.worker_mb + in_flight * figures.turn_mb + apis * figures.api_mb) / 1e3,
        redis_gb=turns * (_EVENTS_KEPT_S + load.seconds) * figures.events_bytes / 1e9,
        disk_gb_a_day=turns * _DAY_S * _stored_bytes(load, figures) / 1e9,
    )


def _processes(cpu_ms_a_second: float) -> int:
    """Return how many cores, each used to its share, have this much CPU a second."""
    return max(1, ceil(cpu_ms_a_second / 1e3 / _SHARE))


def _stored_bytes(load: Load, figures: Figures) -> float:
    # For each call of the model what it is asked or what its tools returned, and what it answered.
    messages = 2 * load.model_calls
    rows = figures.run_bytes + figures.turn_bytes + messages * figures.message_bytes + 2 * figures.vector_bytes
    return rows + load.tokens * _BYTES_PER_TOKEN * _COPIES_OF_TEXT


def rendered() -> str:
    """Return the text of the page."""
    figures = measured()
    table = [_COLUMNS, "|" + " ---: |" * _COLUMNS.count(" | ") + " ---: |"]
    table += [_row(Load(turns_per_s, seconds), figures) for turns_per_s, seconds in _LOADS]
    return _HEAD + "\n".join(table) + "\n" + _TAIL + "\n".join(_sources(figures)) + "\n" + _ASSUMED


_COLUMNS: Final = (
    "| turns a second | seconds a turn | workers | API processes | cores | of them Postgres | "
    "connections: Postgres | Redis | memory, GB | Redis, GB | disk a day, GB |"
)


def _row(load: Load, figures: Figures) -> str:
    it = needs(load, figures)
    numbers = (f"{load.turns_per_s:,g}", f"{load.seconds:g}", it.workers, it.apis, it.cores)
    more = (it.postgres_cores, f"{it.postgres_connections:,}", f"{it.redis_connections:,}")
    sizes = (f"{it.memory_gb:.1f}", f"{it.redis_gb:.1f}", f"{it.disk_gb_a_day:,.0f}")
    return "| " + " | ".join(str(number) for number in (*numbers, *more, *sizes)) + " |"


def _sources(figures: Figures) -> list[str]:
    bench, soak = "[`make bench`](../performance.md)", "[`make soak`](../performance.md#soak)"
    limits = "[the bounds of processes](../operations.md#connections), tested under load"
    cpu = (
        f"API {figures.api_cpu_ms:g} ms, worker {figures.worker_cpu_ms:g}, embeddings {figures.embeddings_cpu_ms:g}, "
        f"Postgres {figures.postgres_cpu_ms:g}, Valkey {figures.valkey_cpu_ms:g}"
    )
    connections = (
        f"API {figures.api_connections[0]} to Postgres and {figures.api_connections[1]} to Redis, "
        f"worker {figures.worker_connections[0]} and {figures.worker_connections[1]}"
    )
    return [
        f"| CPU a turn | {cpu} | {bench}, row `turns` |",
        f"| memory | worker {figures.worker_mb:g} MB, API {figures.api_mb:g} MB | {soak} |",
        f"| memory of a turn in flight | {figures.turn_mb:g} MB | {bench}, row `memory` |",
        f"| bytes a row, with indexes | run {figures.run_bytes:,g}, turn {figures.turn_bytes:,g}, message "
        f"{figures.message_bytes:,g}, vector {figures.vector_bytes:,g} | {soak} |",
        f"| live events of a run in Redis, for an hour | {figures.events_bytes:,g} bytes | {soak} |",
        f"| connections | {connections} | {limits} |",
        _machines(),
    ]


def _machines() -> str:
    """Return where and when the figures of both commands were measured, as their tables begin."""
    performance = (DOCS / "performance.md").read_text("utf-8")
    bench, soak, *_ = re.findall(r"^(\d{4}-\d\d-\d\d) [\d:]+ UTC, (\d+ cores of [^,]+),", performance, re.MULTILINE)
    return f"| machines | bench: {bench[1]}, {bench[0]}; soak: {soak[1]}, {soak[0]} | the captions of both |"


def _report(load: Load) -> str:
    it = needs(load, measured())
    return (
        f"workers       {it.workers}\n"
        f"API           {it.apis} processes\n"
        f"cores         {it.cores}, {it.postgres_cores} of them for Postgres\n"
        f"connections   {it.postgres_connections} to Postgres, {it.redis_connections} to Redis\n"
        f"memory        {it.memory_gb:.1f} GB for the processes, {it.redis_gb:.1f} GB in Redis\n"
        f"disk          {it.disk_gb_a_day:.1f} GB a day in Postgres\n"
    )


def main() -> int:
    """Print what a load needs, or write or check the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns-per-s", type=_above_zero, default=10.0, help="turns that begin each second")
    parser.add_argument("--seconds", type=_above_zero, default=10.0, help="how long a turn takes")
    parser.add_argument("--model-calls", type=_above_zero, default=2.0, help="of a turn")
    parser.add_argument("--tokens", type=_above_zero, default=500.0, help="of text that a turn adds")
    parser.add_argument("--write", action="store_true", help="write the page")
    parser.add_argument("--check", action="store_true", help="fail if the page differs")
    options = parser.parse_args()
    if options.write:
        PAGE.write_text(rendered(), "utf-8")
    elif options.check:
        if not PAGE.exists() or PAGE.read_text("utf-8") != rendered():
            sys.stderr.write(f"{PAGE.name}: make format writes it from the figures of other pages\n")
            return 1
    else:
        sys.stdout.write(_report(Load(options.turns_per_s, options.seconds, options.model_calls, options.tokens)))
    return 0


def _above_zero(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not above 0")
    return number


if __name__ == "__main__":
    sys.exit(main())
