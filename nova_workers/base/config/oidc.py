"""Settings of single sign-on by OpenID Connect: the provider, and what its people may do."""

from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from nova_workers.base.config.forms import OptionalSecret, empty_is_unset
from nova_workers.base.config.sections import Section
from nova_workers.base.vocabulary import AccessRole

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def _issuer(url: str) -> str:
    parts = urlsplit(url)
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    if not (is_safe and parts.hostname) or parts.query or parts.fragment:
        raise ValueError("give the issuer's https address as the provider writes it, as https://login.example.com is")
    return url


_Words = tuple[Annotated[str, Field(min_length=1, max_length=300)], ...]


class RoleGrant(Section):
    """A rule that gives a role in a tenant to people: those who are in one of the lists."""

    role: AccessRole
    tenant: Annotated[str, Field(min_length=1, max_length=80)] = "ten_default"
    groups: _Words = ()
    """Values of the claim `groups_claim`."""
    emails: _Words = ()
    """Addresses that the provider has verified, in any case; ``@example.com`` is all of a domain."""
    subjects: _Words = ()
    """Values of the claim ``sub``, the provider's own ids of people."""

    @model_validator(mode="after")
    def _check_named(self) -> Self:
        if not (self.groups or self.emails or self.subjects):
            raise ValueError("names no one: give groups, emails or subjects")
        return self


class OidcSettings(Section):
    """Single sign-on. Without an issuer there is none."""

    issuer: Annotated[Annotated[str, AfterValidator(_issuer)] | None, BeforeValidator(empty_is_unset)] = None
    """The provider, exactly as its tokens name it."""
    client_id: Annotated[str | None, BeforeValidator(empty_is_unset)] = None
    """The console's client at the provider."""
    client_secret: OptionalSecret = None
    """The client's secret, for the console alone. A public client has none: PKCE is always used."""
    device_client_id: Annotated[str | None, BeforeValidator(empty_is_unset)] = None
    """The public client of `nova login`, which may use the device flow (RFC 8628). The API accepts its ID tokens."""
    audiences: _Words = ()
    """Further clients of the provider whose ID tokens the API accepts, such as one of a program of your own."""
    scopes: _Words = ("openid", "email", "profile")
    """Those that the console and `nova login` ask for; many providers give groups for one more, such as `groups`."""
    groups_claim: Annotated[str, Field(min_length=1)] = "groups"
    """The claim of the ID token with the person's groups: a list, or one text."""
    name: Annotated[str, Field(min_length=1, max_length=60)] = "single sign-on"
    """The provider's name on the button of the sign-in page."""
    grants: tuple[RoleGrant, ...] = ()
    """Who may do what. The first rule that fits a person gives the tenant, and all of that tenant the highest role."""
    session_s: Annotated[int, Field(ge=300, le=2_592_000)] = 43_200
    """A person's key ends after this long, and so does what the provider no longer permits: twelve hours."""

    @model_validator(mode="after")
    def _check_client(self) -> Self:
        if self.issuer is not None and self.client_id is None:
            raise ValueError("issuer needs client_id, the console's client at the provider")
        return self
