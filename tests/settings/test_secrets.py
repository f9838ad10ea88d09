"""The sources of secrets, and that secrets go nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.secret import Secret
from gpuwatch.settings.show import without_password

TELEGRAM = "[notify.telegram]\nchat_id = 1\n"


def key(settings: Any) -> str | None:
    found: Secret | None = settings.providers["vastai"].api_key
    return found.reveal() if found else None


@pytest.mark.parametrize("name", ["VAST_API_KEY", "GPUWATCH_PROVIDERS__VASTAI__API_KEY"])
def test_a_key_comes_by_the_ecosystems_name_and_by_ours(loaded: Any, name: str) -> None:
    assert key(loaded("", env={name: "abc123"})) == "abc123"


@pytest.mark.parametrize("content", [b"abc123", b"abc123\n", b"abc123\r\n\n", b"\xef\xbb\xbfabc123\n"])
@pytest.mark.parametrize("name", ["VAST_API_KEY_FILE", "GPUWATCH_PROVIDERS__VASTAI__API_KEY_FILE"])
def test_a_secret_file_is_trimmed(loaded: Any, tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    assert key(loaded("", env={name: str(tmp_path / "key")})) == "abc123"


@pytest.mark.parametrize("own", ["gpuwatch_vast_api_key", "gpuwatch_providers__vastai__api_key", "vast_api_key"])
@pytest.mark.parametrize("spelt", [str.lower, str.upper])
def test_a_systemd_credential_is_found_by_its_name(
    loaded: Any, tmp_path: Path, own: str, spelt: Callable[[str], str]
) -> None:
    (tmp_path / spelt(own)).write_text("abc123\n")
    (tmp_path / "other").write_text("not ours")
    assert key(loaded("", env={"CREDENTIALS_DIRECTORY": str(tmp_path)})) == "abc123"


def test_a_misspelt_credential_is_a_fault(faults: Any, tmp_path: Path) -> None:
    """Its provider would silently lack a key."""
    (tmp_path / "gpuwatch_vast_key").write_text("s3cr3t")
    (fault,) = faults("", env={"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert fault == "credential gpuwatch_vast_key: no such setting; did you mean gpuwatch_vast_api_key?"


@pytest.mark.parametrize("name", ["gpuwatch_vast_api_key~", "gpuwatch_vast_api_key.bak", "gpuwatch_runpod_api_key"])
def test_leftovers_and_keys_of_providers_to_come_may_lie_there(loaded: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("s3cr3t")
    assert key(loaded("", env={"CREDENTIALS_DIRECTORY": str(tmp_path)})) is None


def test_each_source_of_a_secret_wins_over_those_before(loaded: Any, tmp_path: Path) -> None:
    toml = '[providers.vastai]\napi_key = "from-file"\n'
    env: dict[str, str] = {}
    assert key(loaded(toml, env=env)) == "from-file"
    (tmp_path / "gpuwatch_vast_api_key").write_text("from-credential")
    env["CREDENTIALS_DIRECTORY"] = str(tmp_path)
    assert key(loaded(toml, env=env)) == "from-credential"
    assert key(loaded(toml, "VAST_API_KEY=from-dotenv\n", env=env)) == "from-dotenv"
    env["VAST_API_KEY"] = "from-env"
    assert key(loaded(toml, env=env)) == "from-env"
    env["GPUWATCH_PROVIDERS__VASTAI__API_KEY"] = "from-own-name"
    assert key(loaded(toml, env=env)) == "from-own-name"


@pytest.mark.parametrize("content", [b"", b"\n", b"  \n", b"\xef\xbb\xbf"])
def test_an_empty_secret_file_is_a_fault_that_names_it(faults: Any, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    (fault,) = faults("", env={"VAST_API_KEY_FILE": str(tmp_path / "key")})
    assert fault == f"VAST_API_KEY_FILE: the secret file {tmp_path / 'key'} is empty"


def test_an_empty_credential_is_a_fault_that_names_it(faults: Any, tmp_path: Path) -> None:
    (tmp_path / "gpuwatch_vast_api_key").write_text("")
    (fault,) = faults("", env={"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert fault.startswith("credential gpuwatch_vast_api_key: the secret file ")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a\x00b", b"x" * 70_000])
def test_a_file_that_is_no_secret_is_a_fault_that_does_not_quote_it(
    faults: Any, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "key").write_bytes(content)
    (fault,) = faults("", env={"VAST_API_KEY_FILE": str(tmp_path / "key")})
    assert "xxx" not in fault


def test_a_secret_file_that_is_not_there_is_a_fault(faults: Any, tmp_path: Path) -> None:
    (fault,) = faults("", env={"GPUWATCH_NOTIFY__TELEGRAM__BOT_TOKEN_FILE": str(tmp_path / "no")})
    assert fault.startswith("GPUWATCH_NOTIFY__TELEGRAM__BOT_TOKEN_FILE: the secret file ")


def test_a_secret_and_its_file_at_once_are_a_fault(faults: Any, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("x")
    (fault,) = faults("", env={"VAST_API_KEY_FILE": str(tmp_path / "key"), "VAST_API_KEY": "y"})
    assert fault == "VAST_API_KEY_FILE: expected only one of VAST_API_KEY_FILE and VAST_API_KEY"


def test_every_secret_can_come_from_a_credential(loaded: Any, tmp_path: Path) -> None:
    secrets = {
        "gpuwatch_notify__telegram__bot_token": "1:token",
        "gpuwatch_notify__email__password": "pass word ",
        "gpuwatch_notify__apprise__urls": '["ntfy://a", "ntfy://b"]',
        "gpuwatch_database_url": "postgresql+psycopg://u:pw@h/db",
    }
    for name, text in secrets.items():
        (tmp_path / name).write_text(text + "\n")
    mail = '[notify.email]\nhost = "h"\nusername = "u"\nsender = "a@b"\nrecipients = ["c@d"]\n'
    settings = loaded(TELEGRAM + mail, env={"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert settings.channels["telegram"].secrets["bot_token"].reveal() == "1:token"
    assert settings.channels["email"].secrets["password"].reveal() == "pass word "
    assert settings.channels["apprise"].secrets["urls"].reveal_option() == ("ntfy://a", "ntfy://b")
    assert settings.database_url == "postgresql+psycopg://u:pw@h/db"


def test_dotenv_text_is_taken_as_it_stands(loaded: Any) -> None:
    assert key(loaded("", "VAST_API_KEY=a${HOME}b\n", env={"HOME": ""})) == "a${HOME}b"


def test_no_repr_shows_a_secret(loaded: Any) -> None:
    env = {"VAST_API_KEY": "canary1", "GPUWATCH_NOTIFY__TELEGRAM__BOT_TOKEN": "canary2"}
    env["GPUWATCH_DATABASE_URL"] = "postgresql+psycopg://u:canary3@h/db"
    assert "canary" not in repr(loaded(TELEGRAM, env=env))


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("sqlite:////var/x.db", "sqlite:////var/x.db"),
        ("postgresql://u:p@ss@h/db?password=x", "postgresql://u:********@h/db"),
        ("postgresql://u@h/db", "postgresql://u@h/db"),
    ],
)
def test_a_database_is_shown_without_its_password(url: str, seen: str) -> None:
    assert without_password(url) == seen
