"""Real stores on loopback, for rclone: moto's S3 behind an HTTP server, and rclone's own WebDAV."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

import pytest

SECRET = "a-secret-that-must-not-leave"
AWS = "https://s3.us-east-1.amazonaws.com"  # where moto answers, inside its process
needs_rclone = pytest.mark.skipif(shutil.which("rclone") is None, reason="rclone is not installed (Debian: rclone)")


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """Serve S3 in a process of its own; yields the environment that selects it."""
    with subprocess.Popen([sys.executable, "-m", __name__], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield {
                "PATH": os.environ["PATH"],
                "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{int(server.stdout.readline())}",
                "RCLONE_CONFIG": "/dev/null",
            }
        finally:
            server.kill()


@contextmanager
def webdav_server(folder: Path) -> Iterator[str]:
    """Serve a folder; yields its URL."""
    folder.mkdir()
    argv = ["rclone", "serve", "webdav", "--addr", "127.0.0.1:0", "--config", "/dev/null", str(folder)]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            yield next(found[0] for line in server.stderr if (found := re.search(r"http://[^\]\s]+", line)))
        finally:
            server.kill()


class _Handler(BaseHTTPRequestHandler):
    """Passes each request to moto, and returns its answer."""

    protocol_version = "HTTP/1.1"
    lock = Lock()

    def _body(self) -> bytes:
        """Return the body; Amazon's own libraries send it in chunks."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _pass_on(self) -> None:
        import requests

        body = self._body()
        dropped = {"host", "accept-encoding", "transfer-encoding", "expect"}
        headers = {name: text for name, text in self.headers.items() if name.lower() not in dropped}
        with self.lock:
            got = requests.request(
                self.command, f"{AWS}{self.path}", headers=headers, data=body, timeout=30, stream=True
            )
        content = b"" if self.command == "HEAD" else got.content
        self.send_response(got.status_code)
        for name, text in got.headers.items():
            if name.lower() not in {"content-length", "connection", "transfer-encoding", "content-encoding"}:
                self.send_header(name, text)
        size = got.headers.get("content-length") if self.command == "HEAD" else None
        self.send_header("Content-Length", size or str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815 names of the library

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def main() -> None:
    """Serve until killed; print the port as the first line."""
    from moto import mock_aws

    with mock_aws():
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        sys.stdout.write(f"{server.server_port}\n")
        sys.stdout.flush()
        server.serve_forever()


if __name__ == "__main__":
    main()
