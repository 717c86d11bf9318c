"""The HTTP contract of doors: protocols that the API speaks beside its own."""

from typing import Literal

from nova_workers.contracts.bodies import View


class DoorView(View):
    """A protocol that the API can speak."""

    name: str
    """Its name in `NOVA_DOORS`. A later release knows more of them."""
    path: str
    """The beginning of its paths, such as ``/openai/v1``."""
    state: Literal["open", "closed", "not_installed"]
    """`closed`: `NOVA_DOORS` does not name it. `not_installed`: it does, but `extra` is missing: requests get 501."""
    extra: str | None
    """The extra of the package that it needs; null needs none."""


class DoorsView(View):
    """How clients reach the API."""

    public_url: str | None
    """`NOVA_API__PUBLIC_URL`; null if unset: clients use the address of this request."""
    doors: list[DoorView]
    """Every door that this release has, by name."""
