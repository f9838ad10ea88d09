"""Every place of a secret, in normal and in rescue mode: which text is used, and which origin is shown."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.bootstrap import build_channels
from gpuwatch.domain.watches.launch_spec import HookSpec, LaunchSpec
from gpuwatch.ports import ProviderSection
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.secret import Secret
from gpuwatch.settings import Settings, load, store_last_good
from gpuwatch.settings.external_values import account_secrets, secret_texts, secret_values
from gpuwatch.settings.rescue import FILE, load_for_rescue, load_last_good
from gpuwatch.settings.show import origins

OWN, THEIRS = "GPUWATCH_PROVIDERS__VASTAI__API_KEY", "VAST_API_KEY"
TOML = """database_url = "sqlite:////srv/g.db"
[budget]
max_usd_hour = 5
[providers.vastai]
base_url = "http://127.0.0.1:1"
{key}poll_every = "45s"
[[watch]]
name = "w"
gpu = "H100"
max_price = 2
"""
BREAKAGES: dict[str, Callable[[str], str]] = {
    "the file is not TOML": lambda text: text.replace("max_usd_hour = 5", "max_usd_hour = = 5"),
    "a line of its table is not TOML": lambda text: text.replace('"45s"', '"45s'),
    "its table is invalid": lambda text: text.replace('base_url = "http', 'base_url = "htp'),
    "its table has an unknown key": lambda text: text.replace("poll_every", "api_kye"),
}


class Place:
    """A folder with settings whose key is written in one place, and the state of their daemon."""

    def __init__(self, folder: Path, way: str) -> None:
        self.folder, self.way = folder, way
        self.env = {"STATE_DIRECTORY": str(folder / "state")}

    def write(self, text: str, change: Callable[[str], str] = str) -> None:
        """Write the settings, with this text as the key."""
        folder, kind, name = self.folder, *self.way.split()
        if name.endswith("_FILE") or kind == "credential":
            (folder / "secrets").mkdir(exist_ok=True)
            (folder / "secrets" / name.lower()).write_text(text + "\n")
        value = str(folder / "secrets" / name.lower()) if name.endswith("_FILE") else text
        if kind == "table":
            value = f'{{"api_key": "{text}"}}'
        if kind == "credential":
            self.env["CREDENTIALS_DIRECTORY"] = str(folder / "secrets")
        elif kind == "dotenv":
            (folder / ".env").write_text(f"{name}={value}\n")
        elif kind != "file":
            self.env[name] = value
        toml = TOML.format(key=f'api_key = "{text}"\n' if kind == "file" else "")
        (folder / "gpuwatch.toml").write_text(change(toml))

    def good(self, text: str = "the-old-key") -> Settings:
        """The settings, kept as by a daemon that uses them."""
        self.write(text)
        settings = self.load()
        store_last_good(settings, self.env)
        return settings

    def load(self) -> Settings:
        return load(env=self.env, cwd=self.folder)

    def rescued(self) -> ProviderSection:
        found = load_for_rescue(str(self.folder / "gpuwatch.toml"), env=self.env, cwd=self.folder).settings
        for secret in account_secrets(found):
            assert all(secret_texts(secret.reveal_option()))
            assert set(secret_texts(secret.reveal_option())) <= set(secret_values(found))
        return found.providers["vastai"]


# The way, and the origin that `config show` prints.
WAYS = {
    "file gpuwatch.toml": "file",
    f"env {THEIRS}": f"env {THEIRS}",
    f"env {OWN}": f"env {OWN}",
    f"env {THEIRS}_FILE": f"env {THEIRS}_FILE",
    f"env {OWN}_FILE": f"env {OWN}_FILE",
    "table GPUWATCH_PROVIDERS__VASTAI": "env GPUWATCH_PROVIDERS__VASTAI",
    f"dotenv {THEIRS}": f"env {THEIRS} (.env)",
    f"dotenv {OWN}": f"env {OWN} (.env)",
    f"dotenv {THEIRS}_FILE": f"env {THEIRS}_FILE (.env)",
    "credential vast_api_key": "credential vast_api_key",
    "credential gpuwatch_vast_api_key": "credential gpuwatch_vast_api_key",
}
OUTSIDE = [way for way in WAYS if way != "file gpuwatch.toml"]


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    return Place(tmp_path, request.param)


every_way = pytest.mark.parametrize("place", WAYS, indirect=True)


@every_way
def test_in_valid_settings_it_is_used_from_there(place: Place) -> None:
    place.write("the-key")
    settings = place.load()
    key = settings.providers["vastai"].api_key
    assert key is not None
    assert (key.reveal(), key.origin) == ("the-key", WAYS[place.way])
    assert "the-key" in secret_values(settings)
    assert "the-key" not in repr(settings.providers)


@every_way
def test_config_show_names_the_same_place(place: Place) -> None:
    place.write("the-key")
    _, rows = origins(env=place.env, cwd=place.folder)
    assert next((row.value, row.origin) for row in rows if row.key == "providers.vastai.api_key") == (
        "********",
        WAYS[place.way],
    )


@every_way
def test_what_is_kept_names_the_place_and_not_the_text(place: Place) -> None:
    place.good("canary-key")
    kept = (place.folder / "state" / FILE).read_bytes()
    assert WAYS[place.way].encode() in kept
    assert b"canary" not in kept
    found = load_last_good(place.env)
    assert found is not None
    assert repr(found.providers["vastai"].api_key) == f"Secret({WAYS[place.way]!r})"


@every_way
@pytest.mark.parametrize("breakage", BREAKAGES)
def test_in_rescue_mode_what_is_written_there_now_is_used(place: Place, breakage: str) -> None:
    place.good()
    place.write("the-rotated-key", BREAKAGES[breakage])
    vastai = place.rescued()
    assert vastai.base_url == "http://127.0.0.1:1", "never the default"
    assert vastai.api_key == Secret("the-rotated-key")
    assert vastai.api_key.origin == WAYS[place.way]


@every_way
def test_without_a_settings_file_only_what_is_written_in_it_is_missing(place: Place) -> None:
    place.good()
    (place.folder / "gpuwatch.toml").unlink()
    vastai = place.rescued()
    assert vastai.base_url == "http://127.0.0.1:1"
    assert vastai.api_key == (None if place.way.startswith("file") else Secret("the-old-key"))


@pytest.mark.parametrize("place", OUTSIDE, indirect=True)
def test_what_is_gone_is_missing_and_the_address_stays(place: Place) -> None:
    """No text was stored that could replace it."""
    place.good()
    place.write("the-old-key", BREAKAGES["a line of its table is not TOML"])
    (place.folder / ".env").unlink(missing_ok=True)
    shutil.rmtree(place.folder / "secrets", ignore_errors=True)
    place.env = {"STATE_DIRECTORY": place.env["STATE_DIRECTORY"]}
    vastai = place.rescued()
    assert (vastai.base_url, vastai.api_key) == ("http://127.0.0.1:1", None)


@pytest.mark.parametrize("place", [way for way in OUTSIDE if "_FILE" in way], indirect=True)
def test_a_secret_file_that_is_gone_is_missing_and_the_address_stays(place: Place) -> None:
    place.good()
    shutil.rmtree(place.folder / "secrets")
    vastai = place.rescued()
    assert (vastai.base_url, vastai.api_key) == ("http://127.0.0.1:1", None)


@pytest.mark.parametrize(
    "place", [way for way in OUTSIDE if "_FILE" in way or way.startswith("credential")], indirect=True
)
def test_a_secret_file_is_read_although_nothing_names_it_any_more(place: Place) -> None:
    place.good()
    place.write("the-rotated-key", BREAKAGES["a line of its table is not TOML"])
    (place.folder / ".env").unlink(missing_ok=True)
    place.env = {"STATE_DIRECTORY": place.env["STATE_DIRECTORY"]}
    vastai = place.rescued()
    assert vastai.api_key == Secret("the-rotated-key")
    assert vastai.api_key.origin == WAYS[place.way]


@pytest.mark.parametrize("place", [f"dotenv {THEIRS}"], indirect=True)
def test_a_secret_that_moved_elsewhere_is_found_there(place: Place) -> None:
    place.good()
    place.write("the-old-key", BREAKAGES["the file is not TOML"])
    (place.folder / ".env").unlink()
    place.env[OWN] = "the-new-key"
    vastai = place.rescued()
    assert vastai.api_key == Secret("the-new-key")
    assert vastai.api_key.origin == f"env {OWN}"


@pytest.mark.parametrize("place", [f"dotenv {THEIRS}"], indirect=True)
def test_another_variable_of_dotenv_is_no_secret_file(place: Place) -> None:
    place.good()
    place.write("the-old-key", BREAKAGES["a line of its table is not TOML"])
    (place.folder / ".env").write_text("ANOTHER=variable\n")
    assert place.rescued().api_key is None


@pytest.mark.parametrize("place", [f"env {THEIRS}_FILE"], indirect=True)
@pytest.mark.parametrize("content", [b"", b"two words", b"\xff", b"x" * 70_000])
def test_a_secret_file_that_became_rubbish_is_missing(place: Place, content: bytes) -> None:
    place.good()
    (place.folder / "secrets" / f"{THEIRS}_FILE".lower()).write_bytes(content)
    del place.env[f"{THEIRS}_FILE"]
    (place.folder / "gpuwatch.toml").unlink()
    assert place.rescued().api_key is None


# --- channels and launches --------------------------------------------------------------------------------------------

OTHERS = """
[providers.runpod]
base_url = "http://127.0.0.1:2"
[notify.telegram]
chat_id = 1
[notify.email]
host = "h"
username = "u"
sender = "a@b"
recipients = ["c@d"]
[watchdog]
[web]
tokens = [{ name = "t", token = "a-token-of-16-characters", scopes = ["read"] }]
"""
SECRETS = {
    "GPUWATCH_PROVIDERS__RUNPOD__PREVIOUS_API_KEY": "previous-key",
    "GPUWATCH_NOTIFY__TELEGRAM__BOT_TOKEN": "123456:abcdefghijklmnopqrstuvwxyz",
    "GPUWATCH_NOTIFY__EMAIL__PASSWORD": "pass word ",
    "GPUWATCH_NOTIFY__APPRISE__URLS": '["ntfy://one", "ntfy://two"]',
    "GPUWATCH_WATCHDOG__HEARTBEAT_URL": "https://hc.example.org/uuid",
    "GPUWATCH_WEB__PASSWORD_HASH": "scrypt$14$8$1$" + "0" * 32 + "$" + "1" * 64,
}


def texts(settings: Settings) -> dict[str, tuple[str, ...]]:
    """Origin → texts, of everything that came from the environment."""
    return {one.origin: secret_texts(one.reveal_option()) for one in account_secrets(settings) if one.origin != "file"}


EXPECTED = {
    f"env {name}": ("ntfy://one", "ntfy://two") if name.endswith("URLS") else (text,) for name, text in SECRETS.items()
}


def test_every_other_secret_knows_its_place_too(tmp_path: Path) -> None:
    (tmp_path / "gpuwatch.toml").write_text(OTHERS)
    settings = load(env={"STATE_DIRECTORY": str(tmp_path / "state")} | SECRETS, cwd=tmp_path)
    assert texts(settings) == EXPECTED
    assert settings.web.tokens[0].token == Secret("a-token-of-16-characters")
    assert settings.web.tokens[0].token.origin == "file"


@pytest.mark.parametrize("left", [None, "[notify\nbroken", OTHERS.replace("chat_id = 1", "chat_id = = 1")])
def test_channels_and_previous_keys_are_resolved_in_rescue_mode(tmp_path: Path, left: str | None) -> None:
    file = tmp_path / "gpuwatch.toml"
    file.write_text(OTHERS)
    env = {"STATE_DIRECTORY": str(tmp_path / "state")} | SECRETS
    store_last_good(load(env=env, cwd=tmp_path), env)
    file.unlink() if left is None else file.write_text(left)
    assert texts(load_for_rescue(str(file), env=env, cwd=tmp_path).settings) == EXPECTED


def test_a_channel_without_the_secret_that_it_needs_is_left_out(tmp_path: Path) -> None:
    """It could not be built, and must not keep the daemon from following launches."""
    file = tmp_path / "gpuwatch.toml"
    file.write_text(OTHERS)
    env = {"STATE_DIRECTORY": str(tmp_path / "state")}
    store_last_good(load(env=env | SECRETS, cwd=tmp_path), env)
    file.unlink()
    found = load_for_rescue(str(file), env=env, cwd=tmp_path)
    assert list(found.settings.channels) == ["email"], "a server of mail may need no password"
    assert "runpod" in found.settings.providers
    assert [line for line in found.lines if "ignored" in line] == [
        "[notify.telegram] is ignored: bot_token is not where it was written, nor anywhere else",
        "[notify.apprise] is ignored: urls is not where it was written, nor anywhere else",
    ]
    http = PooledHttpClient()
    try:
        build_channels(found.settings, http)
    finally:
        http.close()


@pytest.mark.parametrize("value", ["5", "[1, 2]", '{ a = "b" }', '""'])
@pytest.mark.parametrize("table", ["notify.telegram]\nchat_id = 1\nbot_token", "providers.vastai]\napi_key"])
def test_a_secret_of_another_type_does_not_end_rescue_mode(tmp_path: Path, table: str, value: str) -> None:
    file = tmp_path / "gpuwatch.toml"
    file.write_text("[providers.vastai]\n[notify.telegram]\nchat_id = 1\n")
    env = {"STATE_DIRECTORY": str(tmp_path / "state"), "GPUWATCH_NOTIFY__TELEGRAM__BOT_TOKEN": "123456:abc"}
    store_last_good(load(env=env, cwd=tmp_path), env)
    file.write_text(f"[{table} = {value}\n[budget]\nmax_usd_hour = = 1\n")
    del env["GPUWATCH_NOTIFY__TELEGRAM__BOT_TOKEN"]
    found = load_for_rescue(str(file), env=env, cwd=tmp_path)
    assert all(secret.reveal_option() for secret in account_secrets(found.settings))


LAUNCH = """[[watch]]
name = "w"
gpu = "H100"
max_price = 2
[watch.launch]
max_runtime = "1h"
onstart = "echo canary-script"
env = { LITERAL = "canary-literal", ENV = { from_env = "A_TOKEN" }, FILE = { from_file = "token" } }
registry = { server = "ghcr.io", username = "me", password = { from_file = "token" } }
on_ended = { url = { from_env = "A_URL" }, secret = { from_env = "A_TOKEN" } }
before_stop = "echo canary-command"
"""


@pytest.fixture
def launching(tmp_path: Path) -> dict[str, str]:
    """The environment of settings whose launch has references of every kind."""
    (tmp_path / "gpuwatch.toml").write_text(LAUNCH)
    (tmp_path / "token").write_text("canary-file\n")
    (tmp_path / ".env").write_text("A_URL=https://h.example.org/canary-url\n")
    return {"STATE_DIRECTORY": str(tmp_path / "state"), "A_TOKEN": "canary-env"}


def launch_of(settings: Settings) -> LaunchSpec:
    launch = settings.watches[0].launch
    assert launch is not None
    return launch


def test_references_of_a_launch_know_their_places(tmp_path: Path, launching: dict[str, str]) -> None:
    launch = launch_of(load(env=launching, cwd=tmp_path))
    assert launch.registry is not None
    assert launch.on_ended is not None
    found = {**launch.secret_env, "password": launch.registry.password, "url": launch.on_ended.url}
    assert {name: secret and (secret.reveal(), secret.origin) for name, secret in found.items()} == {
        "ENV": ("canary-env", "env A_TOKEN"),
        "FILE": ("canary-file", f"file {tmp_path}/token"),
        "password": ("canary-file", f"file {tmp_path}/token"),
        "url": ("https://h.example.org/canary-url", "env A_URL (.env)"),
    }
    assert launch.env == {"LITERAL": "canary-literal"}


def test_what_a_launch_of_an_unreadable_table_would_have_run_is_not_guessed(
    tmp_path: Path, launching: dict[str, str]
) -> None:
    store_last_good(load(env=launching, cwd=tmp_path), launching)
    assert b"canary" not in (tmp_path / "state" / FILE).read_bytes()
    (tmp_path / "gpuwatch.toml").write_text(LAUNCH.replace("max_price = 2", "max_price = = 2"))
    launch = launch_of(load_for_rescue(str(tmp_path / "gpuwatch.toml"), env=launching, cwd=tmp_path).settings)
    assert launch == LaunchSpec(max_runtime_s=3600.0)


def test_references_of_a_readable_launch_are_used_in_rescue_mode(tmp_path: Path, launching: dict[str, str]) -> None:
    (tmp_path / "gpuwatch.toml").write_text("[budget]\nmax_usd_hour = -1\n" + LAUNCH)
    settings = load_for_rescue(str(tmp_path / "gpuwatch.toml"), env=launching, cwd=tmp_path).settings
    assert launch_of(settings).secret_env == {"ENV": Secret("canary-env"), "FILE": Secret("canary-file")}
    del launching["A_TOKEN"]
    settings = load_for_rescue(str(tmp_path / "gpuwatch.toml"), env=launching, cwd=tmp_path).settings
    launch = launch_of(settings)
    assert (launch.secret_env, launch.on_ended) == ({}, None)
    assert launch.before_stop == HookSpec(command="echo canary-command"), "it runs although another secret is missing"
