"""Serve the explorer to one browser on this machine, and to no one else.

The server listens only on 127.0.0.1. The printed address holds a random token. The first use
exchanges it for a cookie that scripts cannot read. Every other request needs this cookie. The
server refuses requests to another name than 127.0.0.1 or localhost (DNS rebinding), and requests
from another page. Work runs in its own process, for a few seconds at most.

Any process on this machine can connect, and send bytes as slowly as it likes. So the number of
connections is small, and a complete request must arrive within a time limit. If there is no room
for a new connection, the oldest connection that has not shown the cookie is closed.
"""

from __future__ import annotations

import errno
import hmac
import json
import os
import secrets
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import cast
from urllib.parse import parse_qs, urlsplit

from neyman.display.explorer.worker import LIMITS as WORKER_LIMITS
from neyman.display.explorer.worker import Answering


@dataclass(frozen=True)
class Limits:
    """Limit the ports, connections, requests, and waits of the explorer's server."""

    port: int = 8421
    request_bytes: int = 64 * 1024
    ports: int = 20  # ports, from the first one on
    connections: int = 24  # connections, each with a thread
    request_seconds: float = 20.0  # from a free connection to a complete request


LIMITS = Limits()
_SCRIPT, _STYLE = "text/javascript; charset=utf-8", "text/css; charset=utf-8"
_ASSETS = {
    "/": ("display/explorer/static/explore.html", "text/html; charset=utf-8"),
    "/page.css": ("display/report/static/page.css", _STYLE),
    "/explore.css": ("display/explorer/static/explore.css", _STYLE),
    **{
        f"/{name}.js": (f"display/explorer/static/{name}.js", _SCRIPT)
        for name in ("http_link", "charts", "controls", "notices", "shares", "explore")
    },
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Explorer:
    """Serve one plan, one receipt, or only mechanisms.

    Args:
        path: a plan (.toml) or a receipt (.json, or the folder that holds it).
        port: the port to listen on. None takes 8421 or the next free port.
        witness: the options for checking a receipt: ``key``, ``ledger``, ``checkpoint`` as for
            `verify`.
        seconds: largest number of seconds per answer.

    Raises:
        ValueError: the file is not valid, or the port is in use.
    """

    def __init__(
        self,
        path: str | None = None,
        *,
        port: int | None = None,
        witness: dict[str, str] | None = None,
        seconds: float = WORKER_LIMITS.answer_seconds,
    ) -> None:
        self.answering = Answering(path, witness, seconds)
        try:
            self.server = _listen(port)
        except BaseException:
            self.answering.close()
            raise
        self.server.explorer = self
        self.token = secrets.token_urlsafe(24)
        self.session = secrets.token_urlsafe(24)
        # Ports share cookies, so two explorers at once need two names.
        self.cookie = f"neyman-{self.port}"
        self._exchange = threading.Lock()
        self._spent = False

    @property
    def port(self) -> int:
        """Return the port that the server listens on."""
        return self.server.server_address[1]

    @property
    def address(self) -> str:
        """Return the address to open. It works once."""
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    def serve(self) -> None:
        """Answer requests until `close` or an interrupt."""
        try:
            self.server.serve_forever(poll_interval=0.2)
        finally:
            self.close()

    def close(self) -> None:
        """Stop listening, and end the worker process."""
        self.server.server_close()
        self.answering.close()

    def exchanged(self, token: str) -> bool:
        """Return True if a token is correct and was not used before."""
        with self._exchange:
            good = not self._spent and hmac.compare_digest(token.encode(), self.token.encode())
            self._spent = self._spent or good
            return good


_Request = socket.socket | tuple[bytes, socket.socket]


class _ExplorerServer(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = os.name != "nt"  # on Windows, True would share the port
    explorer: Explorer

    def __init__(self, port: int) -> None:
        self._places = threading.BoundedSemaphore(LIMITS.connections)
        # Connections without the cookie, the oldest first. Each use is one atomic dict operation.
        self.strangers: dict[socket.socket, None] = {}
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: _Request, client_address: object) -> None:
        """Start a thread for a connection. Without room, end the oldest that lacks the cookie."""
        if not self._places.acquire(blocking=False):
            for oldest in [*self.strangers][:1]:
                self.strangers.pop(oldest, None)
                _end_connection(oldest)
            # Wait for the thread of a connection closed to make room.
            if not self._places.acquire(timeout=0.5):
                self.shutdown_request(request)
                return
        self.strangers[cast(socket.socket, request)] = None
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread can be started
            self._leave(request)
            raise

    def process_request_thread(self, request: _Request, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def _leave(self, request: _Request) -> None:
        self.strangers.pop(cast(socket.socket, request), None)
        self._places.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore the errors of a browser that closes its connection."""


def _listen(port: int | None) -> _ExplorerServer:
    ports = range(LIMITS.port, LIMITS.port + LIMITS.ports) if port is None else [port]
    for each in ports:
        try:
            return _ExplorerServer(each)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
    if port is None:
        raise ValueError(
            f"ports {LIMITS.port} to {LIMITS.port + LIMITS.ports - 1} are all in use; name "
            "a free one"
        )
    raise ValueError(f"port = {port} is in use; name another, or leave --port out for a free one")


def _end_connection(connection: socket.socket) -> None:
    """Close both directions of a connection. Its thread then ends."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "neyman", ""
    timeout = LIMITS.request_seconds

    def handle_one_request(self) -> None:
        # With a limit per piece only, a request could last as long as it has bytes.
        seconds = self.timeout or LIMITS.request_seconds
        self._limit = threading.Timer(seconds, _end_connection, [self.connection])
        self._limit.daemon = True
        self._limit.start()
        try:
            super().handle_one_request()
        finally:
            self._limit.cancel()

    @property
    def explorer(self) -> Explorer:
        """Return the explorer that the server belongs to."""
        assert isinstance(self.server, _ExplorerServer)
        return self.server.explorer

    def do_GET(self) -> None:
        explorer = self.explorer
        if not self._from_here():
            return
        where = urlsplit(self.path)
        token = parse_qs(where.query).get("token", [""])[0]
        if where.path == "/" and token:
            # If a visitor already has the cookie, a second visit is allowed.
            if explorer.exchanged(token) or self._known():
                self._respond(
                    303,
                    b"",
                    "text/plain",
                    {
                        "Location": "/",
                        "Set-Cookie": f"{explorer.cookie}={explorer.session}; HttpOnly; "
                        "SameSite=Strict; Path=/",
                    },
                )
            else:
                self._refuse(403, "This address was used before. Start the explorer again.")
        elif not self._known():
            self._refuse(403, "Open the address that neyman explore printed.")
        elif where.path in _ASSETS:
            name, kind = _ASSETS[where.path]
            content = resources.files("neyman").joinpath(name).read_bytes()
            self._respond(200, content, kind)
        elif where.path == "/opening":
            self._json(200, explorer.answering.opening)
        elif where.path == "/checks":
            self._json(200, explorer.answering.checks)
        elif where.path == "/alive":
            self._json(200, {})
        else:
            self._refuse(404, "There is nothing here.")

    def do_POST(self) -> None:
        explorer = self.explorer
        if not self._from_here():
            return None
        if self.headers.get("Origin") not in self._names("http://"):
            return self._refuse(403, "Only the explorer's own page may ask.")
        if not self._known():
            return self._refuse(403, "Open the address that neyman explore printed.")
        if self.path != "/answer":
            return self._refuse(404, "There is nothing here.")
        if self.headers.get("Content-Type", "").split(";")[0] != "application/json":
            return self._refuse(415, "Ask in JSON.")
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit() or len(length) > 9:
            return self._refuse(411, "Say how long the question is.")
        if int(length) > LIMITS.request_bytes:
            return self._refuse(413, "The question is too long.")
        try:
            asked = json.loads(self.rfile.read(int(length)), parse_constant=_never)
            page, number, question = asked["page"], asked["number"], asked["question"]
            good = isinstance(page, str) and len(page) <= 40 and type(number) is int
            if not good or not isinstance(question, dict):
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError):
            return self._refuse(400, "The question cannot be read.")
        self._limit.cancel()
        # A question without an answer is not a failure of the page: send 200 and the reason.
        self._json(200, explorer.answering.reply(page, number, cast(dict[str, object], question)))
        return None

    def _from_here(self) -> bool:
        """Return True if the request names this machine and comes from no other page."""
        site = self.headers.get("Sec-Fetch-Site", "none")
        if self.headers.get("Host") not in self._names(""):
            self._refuse(421, "Open this page by the address that neyman explore printed.")
        elif site not in ("none", "same-origin") and self.path.partition("?")[0] != "/":
            self._refuse(403, "Only the explorer's own page may ask.")
        else:
            return True
        return False

    def _names(self, scheme: str) -> tuple[str, str]:
        port = self.explorer.port
        return f"{scheme}127.0.0.1:{port}", f"{scheme}localhost:{port}"

    def _known(self) -> bool:
        explorer = self.explorer
        try:
            cookie = SimpleCookie(self.headers.get("Cookie", "")[:4096]).get(explorer.cookie)
        except CookieError:
            return False
        value = cookie.value if cookie else ""
        good = hmac.compare_digest(value.encode(), explorer.session.encode())
        if good:
            explorer.server.strangers.pop(self.request, None)
        return good

    def _json(self, code: int, content: object) -> None:
        body = json.dumps(content, ensure_ascii=True, allow_nan=False).encode()
        self._respond(code, body, "application/json")

    def _refuse(self, code: int, why: str) -> None:
        self.close_connection = True  # whatever else was sent is not read
        self._respond(
            code, f"{why}\n".encode(), "text/plain; charset=utf-8", {"Connection": "close"}
        )

    def _respond(
        self, code: int, body: bytes, kind: str, more: dict[str, str] | None = None
    ) -> None:
        self.send_response(code)
        for name, value in {**_HEADERS, **(more or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class has it
        """Log nothing, because an address holds a token."""


def _never(name: str) -> None:
    raise ValueError(name)
