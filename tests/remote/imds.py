"""EC2's metadata service on loopback, as strict as IMDSv2: a token first, by PUT, and 404 before there is a notice."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

TOKEN = "AQAAAPx7-a_token/of+IMDS=="


class Imds:
    """Serves `answers`, by path below /latest/meta-data/; a request without the token is 401."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        self.asked: list[str] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                seconds = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
                is_right = self.path == "/latest/api/token" and seconds.isdecimal() and 1 <= int(seconds) <= 21600
                self._answer(200 if is_right else 400, TOKEN.encode() if is_right else b"")

            def do_GET(self) -> None:
                path = self.path.removeprefix("/latest/meta-data/")
                service.asked.append(path)
                if self.headers.get("X-aws-ec2-metadata-token") != TOKEN:
                    self._answer(401, b"Unauthorized")
                elif path in service.answers:
                    self._answer(200, service.answers[path])
                else:
                    self._answer(404, b"<html>Not Found</html>")

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                try:
                    self.wfile.write(body)
                except OSError:
                    self.close_connection = True  # whoever asked has read enough

            def log_message(self, format: str, *args: object) -> None:
                """Keep the output of tests quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def announce(self, action: str, at: str) -> None:
        """Give notice."""
        self.answers["spot/instance-action"] = f'{{"action": "{action}", "time": "{at}"}}'.encode()

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
