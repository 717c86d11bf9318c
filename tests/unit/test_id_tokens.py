"""ID tokens of single sign-on: what is accepted, whose role it gives, and keys of the provider that change."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from nova_workers.base.config import OidcSettings, RoleGrant
from nova_workers.base.errors import Unauthenticated, Unavailable
from nova_workers.base.oidc import OidcProvider
from nova_workers.domain.keys.rules.id_tokens import IdTokens, ProviderKeys
from nova_workers.domain.keys.rules.people import Identity, roles_of
from tests.support.servers.asgi import serving

NONCE = "nonce-of-this-request"


class Provider:
    """The documents of a provider, and tokens with its signature."""

    def __init__(self) -> None:
        self.url = ""
        self.issuer: str | None = None
        self.keys: dict[str, Any] = {"one": ec.generate_private_key(ec.SECP256R1())}
        self.answers = True
        self.reads = 0
        self.now_s = 0.0
        self.app = Starlette(
            routes=[Route("/.well-known/openid-configuration", self._metadata), Route("/keys", self._keys)]
        )

    async def _metadata(self, _: Request) -> Response:
        issuer = self.issuer or self.url
        places = {name: f"{self.url}/{name}" for name in ("authorization_endpoint", "token_endpoint")}
        return JSONResponse({"issuer": issuer, "jwks_uri": f"{self.url}/keys", **places})

    async def _keys(self, _: Request) -> Response:
        self.reads += 1
        if not self.answers:
            return Response(status_code=500)
        found = [
            {**_algorithm(key).to_jwk(key.public_key(), as_dict=True), "kid": key_id, "use": "sig"}
            for key_id, key in self.keys.items()
        ]
        return JSONResponse({"keys": [*found, {"kty": "unknown", "kid": "later"}]})

    def token(self, key_id: str = "one", *, key: Any = None, algorithm: str = "ES256", **changes: Any) -> str:
        """Return a token; a claim that is None is left out."""
        now_s = int(time.time())
        claims: dict[str, Any] = {
            **{"iss": self.url, "sub": "ann", "aud": "console", "iat": now_s, "exp": now_s + 300, "nonce": NONCE},
            **{"email": "Ann@Example.org", "email_verified": True, "name": "Ann", "groups": ["staff"]},
        } | changes
        claims = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(claims, key or self.keys[key_id], algorithm=algorithm, headers={"kid": key_id})


def _algorithm(key: Any) -> Any:
    if isinstance(key, rsa.RSAPrivateKey):
        return RSAAlgorithm(RSAAlgorithm.SHA256)
    return ECAlgorithm(ECAlgorithm.SHA256)


@pytest.fixture
async def provider() -> AsyncGenerator[Provider]:
    """A provider on loopback."""
    made = Provider()
    async with serving(made.app) as url:
        made.url = url
        yield made


@pytest.fixture
def tokens(provider: Provider) -> IdTokens:
    """What checks the provider's tokens for the clients `console` and `cli`."""
    known = OidcProvider(provider.url)
    keys = ProviderKeys(known, monotonic_s=lambda: provider.now_s)
    return IdTokens(known, keys, audiences=("console", "cli"), groups_claim="groups")


async def test_a_token_of_the_provider_names_the_person(provider: Provider, tokens: IdTokens) -> None:
    assert await tokens.verify(provider.token(), NONCE) == Identity(
        issuer=provider.url,
        subject="ann",
        email="Ann@Example.org",
        is_verified=True,
        name="Ann",
        groups=frozenset({"staff"}),
    )
    assert (await tokens.verify(provider.token(aud="cli", nonce=None, groups="one"), None)).groups == {"one"}
    provider.keys["rsa"] = rsa.generate_private_key(65537, 2048)
    provider.now_s += 31
    assert (await tokens.verify(provider.token("rsa", algorithm="RS256"), NONCE)).subject == "ann"


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://login.example.org"},
        {"aud": "another"},
        {"aud": ["console", "another"]},
        {"azp": "another"},
        {"exp": 1},
        {"exp": None},
        {"iat": None},
        {"iat": int(time.time()) - 3_600},
        {"sub": None},
        {"sub": ""},
        {"nonce": None},
        {"nonce": "nonce-of-another-one"},
        {"nonce": 7},
    ],
    ids=lambda changes: "-".join(f"{name}={value}" for name, value in changes.items()),
)
async def test_a_token_with_other_claims_is_refused(
    provider: Provider, tokens: IdTokens, changes: Mapping[str, Any]
) -> None:
    with pytest.raises(Unauthenticated, match="is not accepted"):
        await tokens.verify(provider.token(**changes), NONCE)


async def test_a_token_with_a_nonce_needs_it(provider: Provider, tokens: IdTokens) -> None:
    with pytest.raises(Unauthenticated, match="nonce"):
        await tokens.verify(provider.token(), None)


async def test_a_token_with_another_signature_is_refused(provider: Provider, tokens: IdTokens) -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    public = _algorithm(other).to_jwk(provider.keys["one"].public_key())
    head, claims, signature = provider.token().split(".")
    for forged in (
        provider.token(key=other),
        # A signature with a secret that everyone knows, such as one made of the public key.
        provider.token(key=b64encode(public.encode()), algorithm="HS256"),
        jwt.encode({"sub": "ann"}, "", algorithm="none"),
        f"{head}.{claims}.",
        f"{head}.{claims[:-4]}AAAA.{signature}",
        "no token",
        "",
        "x" * 20_000,
    ):
        with pytest.raises(Unauthenticated, match="is not accepted"):
            await tokens.verify(forged, NONCE)


async def test_a_new_key_of_the_provider_is_read_once_and_a_removed_one_is_forgotten(
    provider: Provider, tokens: IdTokens
) -> None:
    old = provider.token()
    await tokens.verify(old, NONCE)
    assert provider.reads == 1
    provider.keys = {"two": ec.generate_private_key(ec.SECP256R1())}
    new = provider.token("two")
    # Anyone may send tokens with unknown keys: they cause one read in half a minute.
    for _ in range(3):
        with pytest.raises(Unauthenticated, match="no such key"):
            await tokens.verify(new, NONCE)
    assert provider.reads == 1
    provider.now_s += 31
    await tokens.verify(new, NONCE)
    assert provider.reads == 2
    with pytest.raises(Unauthenticated, match="no such key"):
        await tokens.verify(old, NONCE)


async def test_known_keys_are_believed_for_a_day_while_the_provider_does_not_answer(
    provider: Provider, tokens: IdTokens
) -> None:
    await tokens.verify(provider.token(), NONCE)
    provider.answers = False
    provider.now_s += 86_000
    await tokens.verify(provider.token(), NONCE)
    assert provider.reads == 2
    provider.now_s += 1_000
    with pytest.raises(Unavailable, match="answered with 500"):
        await tokens.verify(provider.token(), NONCE)


async def test_the_metadata_of_another_issuer_is_refused(provider: Provider, tokens: IdTokens) -> None:
    provider.issuer = "https://login.example.org"
    with pytest.raises(Unavailable, match="is of the issuer"):
        await tokens.verify(provider.token(), NONCE)


def _person(**changes: Any) -> Identity:
    given: dict[str, Any] = {
        **{"issuer": "https://login.example.org", "subject": "ann", "email": "Ann@Example.org", "is_verified": True},
        **{"name": "Ann", "groups": frozenset({"staff", "ops"})},
    }
    return Identity(**given | changes)


def test_the_rules_give_the_highest_role_in_each_tenant() -> None:
    grants = (
        RoleGrant(role="viewer", tenant="one", groups=("staff",)),
        RoleGrant(role="admin", tenant="two", emails=("ann@example.org",)),
        RoleGrant(role="builder", tenant="one", groups=("ops",)),
        RoleGrant(role="operator", tenant="one", subjects=("ann",)),
    )
    assert list(roles_of(_person(), grants).items()) == [("one", "builder"), ("two", "admin")]
    assert roles_of(_person(groups=frozenset()), grants) == {"two": "admin", "one": "operator"}
    assert roles_of(_person(groups=frozenset(), email=None), grants) == {"one": "operator"}
    assert roles_of(_person(groups=frozenset({"others"}), email=None, subject="bob"), grants) == {}


@pytest.mark.parametrize(
    ("email", "is_verified", "fits"),
    [
        ("bob@example.org", True, True),
        ("BOB@EXAMPLE.ORG", True, True),
        ("bob@example.org", False, False),
        ("bob@sub.example.org", True, False),
        ("bob@example.org.attacker.net", True, False),
        (None, True, False),
    ],
)
def test_a_domain_is_that_of_a_verified_address(email: str | None, is_verified: bool, fits: bool) -> None:
    grant = RoleGrant(role="viewer", emails=("@example.org",))
    given = roles_of(_person(email=email, is_verified=is_verified), (grant,))
    assert given == ({"ten_default": "viewer"} if fits else {})


@pytest.mark.parametrize(
    "issuer", ["http://login.example.org", "login.example.org", "https://a.example/?x=1", "https://"]
)
def test_an_issuer_without_tls_is_refused(issuer: str) -> None:
    with pytest.raises(ValueError, match="issuer's https address"):
        OidcSettings(issuer=issuer, client_id="console")
