"""The checks of `nova doctor` as a client of the API: the API itself, the key, and what is paused or held."""

from collections.abc import Awaitable, Callable, Sequence

from nova_workers.base.errors import NovaError, Unauthenticated
from nova_workers.cli.operations.author_checks import check_authors
from nova_workers.cli.operations.findings import Finding, isolated
from nova_workers.cli.operations.orchestration_checks import check_orchestrations
from nova_workers.cli.target import Target
from nova_workers.cli.terminal.output import stamp
from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.fleet import FleetView, HeldRuns, ProviderRest, QueuedGroup, SwitchView

_MOST_NAMED = 3


async def check_api(client: NovaClient, target: Target) -> list[Finding]:
    """Check the API as a client: it answers, reaches its servers, accepts the key; and what the key may see."""
    try:
        await client.healthz()
    except NovaError as error:
        return [Finding("api", "fail", error.message, "start it with `nova up` or `nova api`, or correct --api-url")]
    found = [Finding("api", "ok", f"{target.url}, from {target.url_source}")]
    try:
        await client.readyz()
    except NovaError as error:
        fix = "fix what the message names; see the API log"
        found.append(Finding("api ready", "fail", error.message, fix))
    else:
        found.append(Finding("api ready", "ok", "reaches its servers"))
    scopes, key = await _check_key(client, target)
    found.append(key)
    if scopes is None:
        return found
    for name, scope, check in _CHECKS:
        if scope <= scopes:
            found += await isolated(name, _one(client, check))
    return found


async def check_console(url: object) -> list[Finding]:
    """Check the web console that `nova up` started, at the address of its state file; nothing without one."""
    if not isinstance(url, str):
        return []
    async with NovaClient(url, None) as console:
        try:
            # The same path and the same answer as the API's.
            await console.healthz()
        except NovaError:
            fix = "see the lines of `console` in the output of `nova up`"
            return [Finding("console", "warn", f"nothing answers at {url}", fix)]
    return [Finding("console", "ok", f"{url}; `nova console --login` signs in")]


async def _check_key(client: NovaClient, target: Target) -> tuple[frozenset[str] | None, Finding]:
    """Return the key's scopes, if the API accepts it."""
    if target.api_key is None:
        fix = "give a key, or run `nova up`, which makes the first one"
        return None, Finding("key", "fail", target.key_source, fix)
    try:
        scopes = (await client.whoami()).scopes
    except Unauthenticated as error:
        fix = (
            f"it came from {target.key_source}; give another, or ask for a new one (`nova keys create`). On the fleet "
            "of this machine `nova up` makes one when it starts"
        )
        return None, Finding("key", "fail", error.message, fix)
    except NovaError as error:
        # What the API cannot look up says nothing about the key.
        fix = "nothing is known against the key: fix what the message names first"
        return None, Finding("key", "fail", f"not checked: {error.message}", fix)
    if "runs" in scopes:
        return frozenset(scopes), Finding("key", "ok", f"may use {', '.join(scopes)}; from {target.key_source}")
    fix = "ask for one with `nova keys create NAME --scope runs --scope agents`"
    return frozenset(scopes), Finding("key", "fail", f"may use {', '.join(scopes) or 'nothing'}, not runs", fix)


async def _check_fleet(client: NovaClient) -> list[Finding]:
    fleet: FleetView = await client.fleet.view()
    return [*(_paused(switch) for switch in fleet.switches), *(_held(runs) for runs in fleet.held)]


def _paused(switch: SwitchView) -> Finding:
    because = f": {switch.reason}" if switch.reason else ""
    since = f"since {stamp(switch.created_at)}{because}"
    if switch.scope == "agent":
        return Finding(
            f"agent {switch.target}", "warn", f"paused {since}", f"`nova fleet resume --agent {switch.target}`"
        )
    fix = "`nova fleet resume --scope fleet`" if switch.scope == "fleet" else "`nova fleet resume`"
    which = "fleet" if switch.scope == "fleet" else "tenant"
    return Finding(which, "warn", f"paused {since}", fix)


def _held(held: HeldRuns) -> Finding:
    name = held.provider if held.profile in (None, held.provider) else f"{held.provider} {held.profile}"
    model = f" for {held.model}" if held.model else ""
    sentence = f"{held.outage.replace('_', ' ')}{model}: {held.runs} runs wait for it. It says: {held.message}"
    return Finding(f"provider {name}", "fail", sentence, held.advice)


async def _check_queued(client: NovaClient) -> list[Finding]:
    groups = (await client.fleet.queued()).groups
    return [
        *(_unserved(group) for group in groups if group.reason == "no_worker"),
        *(_without_project(group) for group in groups if group.reason == "project"),
    ]


def _unserved(group: QueuedGroup) -> Finding:
    fix = "start one with `nova worker` for this queue, or for the pool of its tenants with `--pool`"
    return Finding(f"queue {group.queue}", "fail", f"{group.runs} runs wait, and no worker takes them", fix)


def _without_project(group: QueuedGroup) -> Finding:
    fix = "`nova runs list --status queued` names them, `nova runs show ID` the project: start a worker that has it"
    sentence = f"{group.runs} runs wait for a project that no live worker has"
    return Finding(f"projects, queue {group.queue}", "fail", sentence, fix)


async def _check_providers(client: NovaClient) -> list[Finding]:
    return [_rests(rest) for rest in (await client.fleet.providers()).rests if rest.state != "answering"]


def _rests(rest: ProviderRest) -> Finding:
    name = " ".join(part for part in (rest.provider, rest.profile, rest.model) if part)
    until = "" if rest.until is None else f" until {stamp(rest.until)}"
    said = f". It says: {rest.error}" if rest.error else ""
    detail = f"{'paused' if rest.state == 'resting' else 'being tried'}{until} after {rest.reason}{said}"
    return Finding(f"model provider {name}", "warn", detail, "`nova fleet providers --clear` tries it at once")


async def _check_triggers(client: NovaClient) -> list[Finding]:
    page = await client.triggers.list(paused=True, limit=100)
    if not page.items:
        return []
    named = ", ".join(
        f"{trigger.title or trigger.id} ({trigger.paused_reason})" for trigger in page.items[:_MOST_NAMED]
    )
    more = ", …" if len(page.items) > _MOST_NAMED or page.next_cursor else ""
    count = f"{len(page.items)}{'+' if page.next_cursor else ''}"
    fix = f"fix what it says, and `nova triggers resume {page.items[0].id}`"
    return [Finding("triggers", "warn", f"{count} paused: {named}{more}", fix)]


async def _check_deliveries(client: NovaClient) -> list[Finding]:
    return [
        Finding(
            f"deliveries to {target.url or target.target}",
            "warn",
            f"{target.waiting} wait until {stamp(target.next_try_at)}. The last attempt: {target.error}",
            f"fix what it says, and `nova webhooks retry {target.target}`",
        )
        for target in (await client.deliveries.targets()).items
    ]


async def _check_channels(client: NovaClient) -> list[Finding]:
    return [
        Finding(
            f"inbound channel {channel.name}",
            "warn",
            f"rests since {stamp(channel.failing_since)}: {channel.error}",
            f"fix what it says, and `nova channels retry {channel.name}`",
        )
        for channel in (await client.inbound_channels.list()).items
        if channel.error is not None
    ]


async def _check_work_orders(client: NovaClient) -> list[Finding]:
    # A tenant without a secret may just use none: this is no fault.
    if (await client.work_order_secrets.list()).items:
        return [Finding("work orders", "ok", "the tenant has a secret for their keys")]
    return [Finding("work orders", "ok", "refused: the tenant has no secret (`nova orders secrets create`)")]


_Check = Callable[[NovaClient], Awaitable[Sequence[Finding]]]

_CHECKS: tuple[tuple[str, frozenset[str], _Check], ...] = (
    ("fleet", frozenset(), _check_fleet),
    ("queued runs", frozenset(), _check_queued),
    ("model providers", frozenset({"operator"}), _check_providers),
    ("triggers", frozenset({"workspace"}), _check_triggers),
    ("deliveries", frozenset({"workspace"}), _check_deliveries),
    ("inbound channels", frozenset({"workspace"}), _check_channels),
    ("work orders", frozenset({"secrets"}), _check_work_orders),
    ("rights of authors", frozenset({"agents", "keys"}), check_authors),
    ("tools in orchestrations", frozenset({"runs", "agents"}), check_orchestrations),
)
"""What is checked once the key is accepted: the name if it fails, the scopes that it needs, and how."""


def _one(client: NovaClient, check: _Check) -> Callable[[], Awaitable[Sequence[Finding]]]:
    return lambda: check(client)
