"""Protocols through which lower packages call higher ones without importing them.

Above the seam: `runs`, `worker` and `api` implement these. Below it: capabilities, effects and engines use them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from nova_workers.contracts.agents import Enclosure
from nova_workers.contracts.deliveries import DeliveryItem
from nova_workers.contracts.http.orchestrations import OrchestrationCreate
from nova_workers.contracts.http.started import Started
from nova_workers.contracts.orchestration import Origin
from nova_workers.contracts.orchestration.events import TreeNews
from nova_workers.contracts.runs import CancelRequest, Doorbell
from nova_workers.contracts.usage import TokenPrice


class Dispatcher(Protocol):
    """Rings doorbells, on the event loop. Best effort: the reconciler repeats lost ones."""

    def ring_runs(self, bells: Sequence[Doorbell]) -> None:
        """Ring for queued runs. Returns at once; never raises."""
        ...

    def ring_effects(self) -> None:
        """Ring for due effects. Returns at once; never raises. Calls in quick succession are combined."""
        ...

    def ring_deliveries(self) -> None:
        """Ring for pending deliveries. Returns at once; never raises. Calls in quick succession are combined."""
        ...


class CancelNotifier(Protocol):
    """Speeds up and publishes what a transaction has committed.

    Without it, leases and the reconciler find cancel requests, and streams lack events that the ledger has.
    """

    async def apply_requests(self, requests: Sequence[CancelRequest]) -> None:
        """Notify the workers that hold the runs, and announce the runs that ended at once."""
        ...

    async def apply_interrupt(self, run_id: str) -> None:
        """Interrupt the active run of a thread at once, as a committed message requested."""
        ...

    def announce_tree(self, news: TreeNews) -> None:
        """Publish what a transaction changed in an orchestration. Returns at once; never raises."""
        ...

    async def notify_order(self, order_id: str) -> None:
        """Notify the requests that wait for the end of a work order, or for its review."""
        ...


class OrchestrationControl(Protocol):
    """Starts and kills orchestrations for agents that are not in one."""

    async def start_by_agent(self, tenant_id: str, wanted: OrchestrationCreate, origin: Origin) -> Started:
        """Start an orchestration under the tenant's configuration as it is now.

        Raises:
            NovaError: It is refused; the message is for the agent.
        """
        ...

    async def kill(self, tenant_id: str, orchestration_id: str, agent: str | None, why: str) -> list[str]:
        """Kill an agent with all below it, the whole tree without `agent`; return the agents that it ended."""
        ...


class DeliveryChannel(Protocol):
    """A way to reach people or programs outside: webhooks, a messenger, mail.

    Above the seam: the sender, which manages the outbox rows, retries, backoff and limits, and calls `deliver` once per
    attempt, for several items concurrently. Below it: the transport. A channel is created once, when the process
    starts.

    Attributes:
        name: The name by which it is granted to agents; unique in a process.
    """

    @property
    def name(self) -> str:
        """The name by which it is granted to agents."""
        ...

    async def deliver(self, item: DeliveryItem) -> int | None:
        """Deliver one item. After a crash an item that was delivered already may come again, with the same id.

        Returns:
            The HTTP status of the receiver's response; None if the channel has none.

        Raises:
            DeliveryFailed: It was not delivered; the error says whether a retry can help.
        """
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


class ModelWindows(Protocol):
    """Provides the context windows of models."""

    def context_tokens(self, engine: str, model: str) -> int:
        """Return the context window in tokens of an engine's model, given by alias or id; a default if unknown."""
        ...


class ModelPrices(Protocol):
    """Provides the prices of models."""

    def per_token(self, engine: str, model: str) -> TokenPrice | None:
        """Return the price of an engine's model, given by alias or id; None if it is not known."""
        ...


class Embedder(Protocol):
    """Embeds texts as vectors whose cosine similarity measures how close their meanings are."""

    @property
    def model(self) -> str:
        """The name of the model; only vectors of the same model are comparable."""
        ...

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return one vector per text, in order.

        Raises:
            NovaError: Embeddings are unavailable now; callers search without them.
        """
        ...


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """A web page as text.

    Attributes:
        url: The final address, after redirects.
        status: The HTTP status; an error page is returned like any other.
        content_type: As the server sent it, without parameters; empty if it sent none.
        truncated: Whether the text was cut at the size limit.
    """

    url: str
    status: int
    content_type: str
    text: str
    truncated: bool = False


class WebFetcher(Protocol):
    """Fetches pages from the public internet only."""

    async def fetch(self, url: str) -> FetchedPage:
        """Return the page.

        Raises:
            ToolFailure: The address is not on the public internet, the server does not answer in time, or the response
                is not text.
        """
        ...


@dataclass(frozen=True, slots=True)
class ShellOutcome:
    """The output of a shell command, and whether it failed or exceeded its time."""

    text: str
    failed: bool


class ShellRunner(Protocol):
    """Runs shell commands as the native Bash does: same shell, environment, sandbox, limits and supervisor."""

    async def run(
        self,
        command: str,
        *,
        cwd: str,
        writable: Sequence[str],
        readable: Sequence[str] = (),
        timeout_s: float | None = None,
        enclosure: Enclosure | None = None,
    ) -> ShellOutcome:
        """Run a command.

        Args:
            command: The command line.
            cwd: Its working directory.
            writable: Further directories that a sandboxed command may write to.
            readable: Directories that it may only read, one of which `cwd` lies in. With any it runs in the sandbox.
            timeout_s: Its time limit; None takes the default. The operator's limit applies to both.
            enclosure: The bounds of a tenant with ceilings.

        Raises:
            ToolFailure: The command cannot be started; or not in the sandbox that the enclosure requires.
        """
        ...
