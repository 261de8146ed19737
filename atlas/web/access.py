"""Who may come in, and who may change anything: the Host header, the token, and the Origin header.

Plain ASGI middleware that raises; `problems` answers. Knows nothing of what is served, but for the few addresses that
anybody may see. The model of threat that it serves is in SECURITY.md.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from atlas.errors import OtherOrigin, ReadOnly, Unauthorized, WrongHost
from atlas.settings import Settings
from atlas.web.problems import document, request_id

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
OPEN = ("/healthz", "/static/")
"""What anybody may ask for: whether the server is up, and the style sheets that the refusal itself is shown with."""
HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
MONTH = 30 * 24 * 3600


def is_loopback(name: str) -> bool:
    """Whether a host name or address means this machine alone."""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def is_address(name: str) -> bool:
    """Whether a host is an IP address (an IPv6 one in brackets) and no name."""
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


class HostCheck:
    """Refuses requests for hosts that this server is not, which is how DNS rebinding looks from here.

    A page of another site can have its own name resolve to this server, and then reads answers as its own; but the
    requests name its host. An address cannot be rebound: where the server listens on all of them, each will do.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.allowed = {settings.host.lower(), f"[{settings.host.lower()}]", *settings.allowed_host}
        self.any_address = settings.host in ("", "0.0.0.0", "::")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self.is_ours(Headers(scope=scope).get("host", "")):
            await self.app(scope, receive, send)
            return
        # Nothing more is read from the request: a page would repeat its host.
        refused = WrongHost(
            "This server does not go by the name in the request's Host header.",
            "Use the address that it was started with, or start it with --allowed-host NAME.",
        )
        await document(refused, request_id(scope))(scope, receive, send)

    def is_ours(self, host: str) -> bool:
        """Whether a Host header names this server."""
        match = HOST.fullmatch(host)
        if match is None:
            return False
        name = match[1].lower()
        return name in self.allowed or is_loopback(name) or (self.any_address and is_address(name))


class Access:
    """Lets in who gives the token, where there is one; a public server lets others read.

    Sets `read_only` in the request's state. The token comes as `Authorization: Bearer`, or once as `?token=`, which is
    answered by a cookie and the address without it. The cookie holds a hash of the token, not the token.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.token = settings.token.encode()
        self.public = settings.public
        self.secret = hmac.new(self.token, b"openmodelatlas cookie", hashlib.sha256).hexdigest()
        # Cookies do not know ports: each server on a machine has a name of its own.
        self.cookie = f"atlas-{hashlib.sha256(self.secret.encode()).hexdigest()[:8]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if self.token and b"token=" in scope["query_string"] and scope["method"] in SAFE:
            query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            given = [value for name, value in query if name == "token"]
            if given:
                self._require(given[-1])
                answer = self._welcome(scope, [(name, value) for name, value in query if name != "token"])
                await answer(scope, receive, send)
                return
        known = bool(self.token) and self._is_known(Headers(scope=scope))
        if self.token and not (known or self.public or scope["path"].startswith(OPEN)):
            raise Unauthorized(
                "This server lets in only who has its token.",
                "Add ?token=TOKEN to the address once, or send `Authorization: Bearer TOKEN`.",
            )
        read_only = self.public and not known
        scope.setdefault("state", {})["read_only"] = read_only
        if read_only and scope["method"] not in SAFE:
            raise ReadOnly(
                "This server is read-only: recorded runs can be looked at, and none can be started or removed.",
                "Start one of your own with: make serve",
            )
        await self.app(scope, receive, send)

    def _is_known(self, headers: Headers) -> bool:
        """Whether the request proves the token. Raises `Unauthorized` for a wrong one."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            self._require(given.strip())
            return True
        cookies: SimpleCookie = SimpleCookie()
        try:
            cookies.load(headers.get("cookie", ""))
        except CookieError:
            return False
        morsel = cookies.get(self.cookie)
        return morsel is not None and hmac.compare_digest(morsel.value.encode(), self.secret.encode())

    def _require(self, given: str) -> None:
        if not hmac.compare_digest(given.encode(), self.token):
            raise Unauthorized("That is not the token of this server.", "Ask whoever runs it.")

    def _welcome(self, scope: Scope, query: list[tuple[str, str]]) -> RedirectResponse:
        """Keeps the token in a cookie and leads to the address without it."""
        path = "/" + quote(scope["path"].lstrip("/\\"), safe="/:@!$&'()*+,;=~-._")  # never to another host
        answer = RedirectResponse(f"{path}?{urlencode(query)}" if query else path, 303)
        answer.set_cookie(
            self.cookie,
            self.secret,
            max_age=MONTH,
            secure=scope["scheme"] == "https",
            httponly=True,
            samesite="strict",
        )
        answer.headers["Cache-Control"] = "no-store"
        return answer


class OriginCheck:
    """Refuses changes that a page of another site asks for. Programs send neither header, and are let through."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.allowed = frozenset(settings.allowed_host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in SAFE:
            headers = Headers(scope=scope)
            site, origin = headers.get("sec-fetch-site"), headers.get("origin")
            same = origin is None or self._is_ours(origin, headers.get("host", ""))
            if not same or site not in (None, "same-origin", "none"):
                raise OtherOrigin(
                    "A page of another site asked for a change, which only pages of this server may.",
                    "Open this server's own page; behind a proxy, start with --allowed-host NAME.",
                )
        await self.app(scope, receive, send)

    def _is_ours(self, origin: str, host: str) -> bool:
        try:
            found = urlsplit(origin)
        except ValueError:
            return False
        return bool(found.netloc) and (found.netloc.lower() == host.lower() or found.hostname in self.allowed)
