"""The guard of ``/v1`` and of doors: limits and authentication, before a byte of a body is read. Plain ASGI."""

from collections.abc import Mapping
from types import MappingProxyType

from starlette.types import ASGIApp, Receive, Scope, Send

from nova_workers.base.errors import Forbidden, NovaError, Unauthenticated
from nova_workers.base.http_server.addresses import address_group, client_address, is_in_networks
from nova_workers.base.http_server.connection_table import prove_connection
from nova_workers.domain.keys.sql.keys import AuthenticatedKey, hash_secret
from nova_workers.domain.upkeep.rules.schema_watch import SchemaWatch
from nova_workers.ledger.shares import working_for
from nova_workers.ledger.visibility import see_tenant

from ..auth import Caller, keep_caller
from ..boundary import header_of
from ..errors import problem_response
from ..key_cache import KeyCache
from .key_uses import KeyUses
from .rates import RequestRates
from .refusals import Refusals
from .sign_ins import SignIns

NATIVE = "/v1/"
"""The paths of the API itself."""
_MAX_KEY_CHARS = 256
_NO_TENANT = ""
"""Has a share of the database's connections like a tenant: requests that need no key, such as that for metrics."""


class RequestGuard:
    """Passes on the requests of callers with a valid key, and those to paths that need none, at a bounded rate."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        schema: SchemaWatch,
        keys: KeyCache,
        uses: KeyUses,
        rates: RequestRates,
        sign_ins: SignIns,
        refusals: Refusals,
        guarded: tuple[str, ...] = (NATIVE,),
        key_headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Take what it compares requests with.

        Args:
            guarded: The beginnings of paths that need a key.
            key_headers: By the beginning of a path, the header that may have the key there in place of
                ``Authorization``, in small letters.
        """
        self._app = app
        self._schema = schema
        self._keys = keys
        self._uses = uses
        self._rates = rates
        self._sign_ins = sign_ins
        self._refusals = refusals
        self._guarded = guarded
        self._key_headers = {prefix: name.encode() for prefix, name in key_headers.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        address = client_address(scope)
        # A Unix socket has no address; what connects to it is the operator's.
        group = None if address is None else address_group(address)
        try:
            if scope["path"].startswith(self._guarded):
                await self._admit(scope, address, group)
            else:
                if group is not None:
                    self._rates.count_without_key(group)
                working_for(_NO_TENANT)
        except NovaError as error:
            await problem_response(error, instance=scope["path"])(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _admit(self, scope: Scope, address: str | None, group: str | None) -> None:
        if group is not None:
            self._rates.count_address(group)
        self._schema.refuse_misfit()
        try:
            caller = await self._authenticate(scope, address, group or "")
        except Unauthenticated:
            if group is not None:
                self._rates.count_without_key(group)
            raise
        prove_connection(scope)
        self._rates.count_key(caller.key_id)
        self._uses.note(caller.key_id, caller.address)
        keep_caller(scope, caller)
        working_for(caller.tenant_id)
        # The database itself keeps the request to its tenant, beside the tenant in each statement.
        see_tenant(caller.tenant_id)
        await self._sign_ins.check(scope, caller)

    async def _authenticate(self, scope: Scope, address: str | None, group: str) -> Caller:
        secret = self._secret_of(scope)
        key = await self._find(secret, group) if len(secret) <= _MAX_KEY_CHARS else None
        if key is None:
            raise Unauthenticated("The API key is not known, was revoked or has expired. `nova keys create` makes one.")
        caller = Caller(
            key_id=key.key_id,
            key_name=key.name,
            tenant_id=key.tenant_id,
            scopes=key.scopes,
            address=address,
            principal=key.person_id or key.key_id,
            networks=key.networks,
            person_id=key.person_id,
        )
        if key.networks and not is_in_networks(address, key.networks):
            await self._refusals.note(caller, scope)
            raise Forbidden(
                f"This key may not be used from {address or 'a Unix socket'!r}: its networks are "
                f"{', '.join(map(str, key.networks))}.",
                address=address,
            )
        return caller

    def _secret_of(self, scope: Scope) -> str:
        scheme, _, secret = header_of(scope, b"authorization").decode("latin-1").partition(" ")
        bearer = secret if scheme.lower() == "bearer" else ""
        other = next((name for prefix, name in self._key_headers.items() if scope["path"].startswith(prefix)), None)
        if other is None:
            if not bearer:
                raise Unauthenticated("The request carries no API key. Send it as `Authorization: Bearer nova_…`.")
            return bearer
        # ASGI gives names of headers in small letters. One that comes twice counts as two keys.
        sent = {value.decode("latin-1") for name, value in scope["headers"] if name == other and value}
        sent |= {bearer} if bearer else set()
        if not sent:
            raise Unauthenticated(
                f"The request carries no API key. Send it as `{other.decode()}: nova_…`, or as `Authorization: Bearer "
                "nova_…`."
            )
        if len(sent) > 1:
            raise Unauthenticated(
                f"The request carries different keys in `{other.decode()}` and `Authorization`. Send one of them."
            )
        return sent.pop()

    async def _find(self, secret: str, group: str) -> AuthenticatedKey | None:
        digest = hash_secret(secret)
        if self._keys.has_seen(digest):
            return await self._keys.find(digest)
        async with self._rates.lookup(group):
            key = await self._keys.find(digest)
            if key is None:
                self._rates.count_failed_key(group)
            return key
