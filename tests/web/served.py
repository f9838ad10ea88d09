"""The web server in this process, with its own settings and store, and a client for it."""

from __future__ import annotations

import html
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from gpuwatch.daemon.log_records import RecentLog
from gpuwatch.settings import Settings, load
from gpuwatch.settings.model import DEFAULT_LISTEN
from gpuwatch.web.context import WebContext
from gpuwatch.web.page import ServingProcess
from gpuwatch.web.server import WebServer
from tests import loopback_client
from tests.upgraded_store import open_upgraded

TOKEN = "a-token-of-at-least-16-characters"
PAGE = {"Accept": "text/html"}
WATCH = """
[[watch]]
name = "cheap"
gpu = ["H100"]
max_price = 2.40
"""


class Served:
    """One running server."""

    def __init__(self, context: WebContext, server: WebServer, codes: list[str], folder: Path) -> None:
        self.context = context
        self.server = server
        self.codes = codes
        self.folder = folder
        self.reloads: list[int] = []  # one entry for each requested reload
        self.url = server.url.rstrip("/")
        self.client = loopback_client.client(base_url=self.url)

    def log_in(self, **given: str) -> str:
        """Log in with the code or the given credential; return the CSRF token."""
        answer = self.client.post("/api/v1/session", json=given or {"code": self.codes[-1]})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["csrf_token"])


def settings_in(
    folder: Path, text: str = WATCH, *, has_store: bool = True, database_url: str | None = None
) -> Settings:
    """Settings from a file in a folder, with an empty store."""
    url = database_url or f"sqlite:///{folder}/gpuwatch.db"
    (folder / "gpuwatch.toml").write_text(f'database_url = "{url}"\n{text}')
    if has_store:
        open_upgraded(url).close()
    return load(env={"HOME": str(folder)}, cwd=folder)


@contextmanager
def served(folder: Path, web: str = "", more: str = WATCH, *, has_store: bool = True) -> Iterator[Served]:
    """Run the server with these lines of `[web]`."""
    settings = settings_in(folder, f'[web]\nlisten = "127.0.0.1:0"\n{web}\n{more}', has_store=has_store)
    with serving_settings(settings, folder) as found:
        yield found


@contextmanager
def serving_settings(settings: Settings, folder: Path, recent_log: RecentLog | None = None) -> Iterator[Served]:
    """Run the server over these settings; at the default address at a free port: others run at the same time."""
    if settings.web.listen == DEFAULT_LISTEN:
        settings = replace(settings, web=replace(settings.web, listen="127.0.0.1:0"))
    codes: list[str] = []
    reloads: list[int] = []
    owner = ServingProcess(
        config=str(folder / "gpuwatch.toml"), reload=lambda: reloads.append(1), recent_log=recent_log
    )
    context = WebContext(settings, codes.append, owner=owner)
    server = WebServer(context)
    context.credentials.print_code()
    server.start()
    found = Served(context, server, codes, folder)
    found.reloads = reloads
    try:
        yield found
    finally:
        found.client.close()
        server.stop()


def page(web: Served, path: str) -> str:
    """The text of a page, without its escapes."""
    answer = web.client.get(path, headers=PAGE)
    assert answer.status_code == 200, answer.text
    return html.unescape(answer.text)


def file_of(web: Served) -> str:
    """The settings file as it is now."""
    return (web.folder / "gpuwatch.toml").read_text()
