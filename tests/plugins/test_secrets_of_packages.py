"""A provider and a channel as written for 0.1 receive the texts of their secrets, from settings that hold places."""

from __future__ import annotations

from pathlib import Path

import pytest
import respx

from gpuwatch import bootstrap
from gpuwatch.ports import Query
from gpuwatch.redaction import redact
from gpuwatch.settings import Settings, load, store_last_good
from gpuwatch.settings.rescue import load_for_rescue
from tests.notifiers.alerts import an_alert
from tests.plugins.conftest import Beside
from tests.plugins.packages import provider_source

OPTIONS = '(OptionSpec(name="token", kind="text", about="A token.", secret=True),)'
BODY = """
                return tools.http.ask("GET", settings.base_url + "/types", headers={
                    "X-Api-Key": settings.api_key, "X-Token": settings.options["token"] or "none"})"""
CHANNEL = f"""
from gpuwatch.notifiers import ChannelInfo
from gpuwatch.ports.declarations import OptionSpec

INFO = ChannelInfo(name="poster", title="Poster", options={OPTIONS}, template='token = "…"')


def build(settings, http):
    class Poster:
        name = "poster"

        def send(self, alert):
            http.ask("POST", "https://poster.example/", headers={{"Authorization": settings.options["token"]}})

    return Poster()
"""
TOML = """
[providers.acme]
api_key = "acme-key-123"
[notify.poster]
token = "poster-token-123"
"""


@pytest.fixture
def settings_of(tmp_path: Path, beside: Beside, monkeypatch: pytest.MonkeyPatch) -> dict[str, Settings]:
    """The settings of a start, and those of rescue mode after the file lost its end."""
    beside(
        "acme",
        {"acme_gpus": provider_source("acme", OPTIONS, body=BODY)},
        {"gpuwatch.providers": {"acme": "acme_gpus"}},
    )
    beside("poster", {"poster_channel": CHANNEL}, {"gpuwatch.notifiers": {"poster": "poster_channel"}})
    monkeypatch.chdir(tmp_path)
    file, env = tmp_path / "gpuwatch.toml", {"STATE_DIRECTORY": str(tmp_path / "state")}
    file.write_text(TOML)
    started = load(str(file), env=env, cwd=tmp_path)
    store_last_good(started, env)
    file.write_text(TOML + "[[watch]]\nname = \n")
    return {"started": started, "rescued": load_for_rescue(str(file), env=env, cwd=tmp_path).settings}


@pytest.mark.parametrize("start", ["started", "rescued"])
def test_a_package_for_0_1_receives_texts(
    settings_of: dict[str, Settings], start: str, respx_mock: respx.Router, tmp_path: Path
) -> None:
    settings = settings_of[start]
    types = respx_mock.get("https://acme.example/types").respond(json=[])
    posted = respx_mock.post("https://poster.example/").respond(204)
    with bootstrap.http_client(settings) as http:
        bootstrap.build_adapters(settings, http, ["acme"])["acme"].market.search(Query())
        bootstrap.build_channels(settings, http)["poster"].send(an_alert())
    assert types.calls.last.request.headers["X-Api-Key"] == "acme-key-123"
    assert types.calls.last.request.headers["X-Token"] == "none"
    assert posted.calls.last.request.headers["Authorization"] == "poster-token-123"
    assert "123" not in redact("acme-key-123 poster-token-123")
    kept = b"".join(path.read_bytes() for path in (tmp_path / "state").iterdir())
    assert kept
    assert b"acme-key" not in kept
    assert b"poster-token" not in kept
