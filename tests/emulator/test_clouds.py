"""The emulators of all providers are found by name, and served by one command."""

from __future__ import annotations

import signal
import subprocess
import sys
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from gpuwatch import providers
from gpuwatch.emulator.provider_server import ProviderServer
from tests import clouds
from tests.checkout import ROOT
from tests.late import LateModule

grpc = LateModule("grpc")


def status_of(url: str, path: str) -> int:
    """Return the status of a GET without a key."""
    connection = HTTPConnection("127.0.0.1", urlsplit(url).port, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def test_every_provider_has_an_emulator() -> None:
    assert set(clouds.names()) == set(providers.names()) - {"vastai"}


@pytest.mark.parametrize("name", clouds.names())
def test_an_emulator_serves_as_it_comes_and_closes(name: str) -> None:
    with clouds.server_of(name)().at(0, "another-key") as stage:
        assert stage.key == "another-key"
        if isinstance(stage, ProviderServer):
            assert status_of(stage.url, "/no/such/path") >= 300
            assert len(stage.requests) == 1
            return
        with grpc.insecure_channel(urlsplit(stage.url).netloc) as channel, pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary("/nebius.iam.v2.TenantService/List")(b"", timeout=60)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert len(stage.calls) == 1


def test_a_provider_without_one_is_named() -> None:
    with pytest.raises(KeyError, match="nowhere"):
        clouds.server_of("nowhere")


def test_the_command_serves_one_until_it_is_interrupted() -> None:
    command = [sys.executable, "-m", "tests.clouds", "lambda", "--key", "mine"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        assert status_of(url, "/instance-types") == 401
        server.send_signal(signal.SIGTERM)
        assert server.wait(240) == 0
    assert url.startswith("http://127.0.0.1:")


def test_two_signals_at_once_end_the_command() -> None:
    command = [sys.executable, "-m", "tests.clouds", "lambda"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        server.stdout.readline()
        server.send_signal(signal.SIGINT)
        server.send_signal(signal.SIGTERM)
        try:
            assert server.wait(240) == 0
        finally:
            server.kill()


def test_the_command_names_what_there_is() -> None:
    command = [sys.executable, "-m", "tests.clouds", "nowhere"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 2
    assert "invalid choice: 'nowhere'" in done.stderr
    assert all(name in done.stderr for name in clouds.names())
