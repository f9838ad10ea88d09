"""`web.probe_listen`: `/healthz` and `/metrics` for a probe by address, which sends any Host and has no session."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.errors import SettingsError
from gpuwatch.web.server import CannotListen, WebServer
from tests import loopback_client
from tests.web.served import TOKEN, Served, served, settings_in

_TOKENS = (
    f'tokens = [{{ name = "prometheus", token = "{TOKEN}", scopes = ["read"] }}, '
    f'{{ name = "other", token = "{TOKEN[::-1]}", scopes = ["manage"] }}]'
)
PROBE = {"Host": "pod-7.cluster.example:9464"}


def own_address() -> str:
    """An address of this machine by which others reach it. No packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("probed")
    with served(folder, f'enabled = true\nprobe_listen = "0.0.0.0:0"\n{_TOKENS}') as running:
        yield running


@pytest.fixture(scope="module")
def url(web: Served) -> str:
    try:
        host = own_address()
    except OSError:
        host = "127.0.0.2"
    return f"http://{host}:{web.server.probe_port}"


def test_health_needs_neither_a_known_host_nor_credentials(url: str) -> None:
    answer = loopback_client.get(f"{url}/healthz", headers=PROBE)
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_health_is_503_while_a_task_makes_no_progress(web: Served, url: str) -> None:
    healthy = web.context.failing_task
    web.context.failing_task = lambda: "hunt vastai"
    answer = loopback_client.get(f"{url}/healthz", headers=PROBE)
    web.context.failing_task = healthy
    assert (answer.status_code, answer.json()) == (503, {"status": "failing", "task": "hunt vastai"})


def test_metrics_need_a_token_with_read(url: str) -> None:
    def status(**headers: str) -> int:
        return loopback_client.get(f"{url}/metrics", headers={**PROBE, **headers}).status_code

    assert status() == 401
    assert status(Authorization="Bearer wrong") == 401
    assert status(Authorization=f"Bearer {TOKEN[::-1]}") == 403
    assert status(Authorization=f"Bearer {TOKEN}") == 200


def test_a_session_opens_nothing_there(web: Served, url: str) -> None:
    web.log_in(token=TOKEN)
    assert web.client.get("/metrics").status_code == 200
    cookie = "; ".join(f"{name}={value}" for name, value in web.client.cookies.items())
    assert loopback_client.get(f"{url}/metrics", headers={**PROBE, "Cookie": cookie}).status_code == 401


def test_nothing_else_exists_there(url: str) -> None:
    bearer = {**PROBE, "Authorization": f"Bearer {TOKEN}", "Accept": "text/html"}
    for path in ("/", "/api/v1/offers", "/login", "/static/gpuwatch.css", "/api/v1/events", "/metrics/"):
        assert loopback_client.get(f"{url}{path}", headers=bearer).status_code == 404, path
    for path in ("/healthz", "/api/v1/pause", "/api/v1/session"):
        assert loopback_client.request("POST", f"{url}{path}", headers=bearer).status_code in {404, 405}, path


def test_without_tokens_metrics_are_open_to_nobody_there_not_even_on_this_machine(tmp_path: Path) -> None:
    """A foreign page in this machine's browser could reach it by DNS rebinding, as no Host is checked."""
    with served(tmp_path, 'enabled = true\nprobe_listen = "127.0.0.1:0"') as web:
        url = f"http://127.0.0.1:{web.server.probe_port}"
        assert loopback_client.get(f"{web.url}/metrics").status_code == 200
        assert loopback_client.get(f"{url}/metrics").status_code == 401
        assert loopback_client.get(f"{url}/healthz").status_code == 200


def test_an_address_in_use_is_one_line_and_frees_the_page_s(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, served(tmp_path, "enabled = true") as web:
        used = f"127.0.0.1:{taken.getsockname()[1]}"
        text = f'[web]\nenabled = true\nlisten = "127.0.0.1:0"\nprobe_listen = "{used}"\n'
        web.context.settings = settings_in(tmp_path, text, has_store=False)
        with pytest.raises(CannotListen, match=f"web: cannot listen at {used}: Address already in use"):
            WebServer(web.context)


def test_it_needs_the_page_and_an_address(tmp_path: Path) -> None:
    for text, problem in (
        ('probe_listen = "0.0.0.0:9464"', r"web\.probe_listen: expected web\.enabled = true"),
        ('enabled = true\nprobe_listen = "9464"', r"web\.probe_listen: expected an address and a port"),
    ):
        with pytest.raises(SettingsError, match=problem):
            settings_in(tmp_path, f"[web]\n{text}\n", has_store=False)
