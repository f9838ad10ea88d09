"""`gpuwatch config show|schema` and `gpuwatch init --full`."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.cli import Exit, run
from gpuwatch.settings import load
from gpuwatch.settings.reference import json_schema
from gpuwatch.settings.show import template


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, without this machine's settings."""
    monkeypatch.chdir(tmp_path)
    for name, value in {"HOME": tmp_path, "XDG_CONFIG_HOME": tmp_path / "c", "XDG_CACHE_HOME": tmp_path / "k"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("VAST_API_KEY", raising=False)
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[Any, str]]:
    """`config show --json` by key."""
    assert run(["config", "show", "--json"]) == Exit.DONE
    return {one["key"]: (one["value"], one["origin"]) for one in json.loads(capsys.readouterr().out)["settings"]}


def test_init_writes_a_file_that_loads(here: Path) -> None:
    assert run(["init", "--full"]) == Exit.DONE
    settings = load(env={}, cwd=here)
    assert settings.dry_run is True
    assert [watch.name for watch in settings.watches] == ["h100"]


def test_the_files_first_line_points_editors_to_the_schema_beside_it(here: Path) -> None:
    run(["init", "--full"])
    assert (here / "gpuwatch.toml").read_text().splitlines()[0] == "#:schema ./gpuwatch.schema.json"
    assert json.loads((here / "gpuwatch.schema.json").read_text()) == json_schema()


def test_init_never_overwrites_without_force(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "gpuwatch.toml").write_text("mine")
    assert run(["init", "--full"]) == Exit.FAILED
    assert (here / "gpuwatch.toml").read_text() == "mine"
    assert capsys.readouterr().err == "gpuwatch: gpuwatch.toml already exists; overwrite it with --force\n"
    assert run(["init", "--full", "--force"]) == Exit.DONE
    assert (here / "gpuwatch.toml").read_text() == template()


def test_what_init_writes_is_for_its_owner_alone(here: Path) -> None:
    run(["init", "--full"])
    assert (here / "gpuwatch.toml").stat().st_mode & 0o777 == 0o600


def test_init_makes_the_folder_that_its_help_names(here: Path) -> None:
    assert run(["init", "--full", "--config", f"{here}/.config/gpuwatch/gpuwatch.toml"]) == Exit.DONE
    assert (here / ".config/gpuwatch").stat().st_mode & 0o777 == 0o700
    assert (here / ".config/gpuwatch/gpuwatch.toml").read_text() == template()


def test_init_in_a_file_is_one_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "file").touch()
    assert run(["init", "--full", "--config", "file/gpuwatch.toml"]) == Exit.FAILED
    assert capsys.readouterr().err == "gpuwatch: cannot create file: File exists\n"


def test_init_writes_the_file_that_every_command_reads(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUWATCH_CONFIG", "~/mine.toml")
    assert run(["init", "--full"]) == Exit.DONE
    assert (here / "mine.toml").read_text() == template()
    assert not (here / "gpuwatch.toml").exists()


def test_what_init_writes_causes_no_warning(here: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(["init", "--full"])
    load(env={}, cwd=here)
    assert caplog.messages == []


def test_the_template_loads_with_every_comment_taken_out(here: Path) -> None:
    """Uncommented lines are valid as they are."""
    lines = [re.sub(r"^# (?=[\[a-z_]+\]? ?(=|\]|$))", "", line) for line in template().splitlines()]
    toml = re.sub(r"^# (\[[a-z.]+\])", r"\1", "\n".join(lines), flags=re.MULTILINE)
    assert "\nidle_for = " in toml
    env = {
        "GPUWATCH_NOTIFY__TELEGRAM__BOT_TOKEN": "1:x",
        "GPUWATCH_NOTIFY__EMAIL__PASSWORD": "x",
        "GPUWATCH_NOTIFY__WEBHOOK__SECRET": "a long shared secret",
    }
    (here / "gpuwatch.toml").write_text(toml)
    settings = load(env=env, cwd=here)
    assert "email" in settings.channels
    assert settings.watches[0].launch is not None


def test_the_template_shows_the_defaults_of_the_contract(here: Path) -> None:
    found = tomllib.loads(template(), parse_float=Decimal)["providers"]["vastai"]
    vast = load(env={}, cwd=here).providers["vastai"]
    assert found["commission"] == vast.commission.rate
    assert found["rows_per_day"] == vast.rows_per_day
    assert (found["poll_every"], found["search_interval"]) == ("30s", "6s")
    assert (vast.poll_every_s, vast.search_interval_s) == (30, 6)


def test_show_tells_where_each_value_came_from(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "gpuwatch.toml").write_text("[providers.vastai]\ncommission = 0.10\n")
    (here / ".env").write_text("GPUWATCH_TIMEZONE=Asia/Tokyo\n")
    (here / "gpuwatch_notify__telegram__bot_token").write_text("1:canary")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(here))
    monkeypatch.setenv("GPUWATCH_NOTIFY__TELEGRAM__CHAT_ID", "5")
    monkeypatch.setenv("VAST_API_KEY", "canary")
    found = shown(capsys)
    assert found["dry_run"] == (True, "default")
    assert found["providers.vastai.base_url"] == ("https://console.vast.ai", "default")
    assert found["providers.vastai.commission"] == (0.10, "file")
    assert found["timezone"] == ("Asia/Tokyo", "env GPUWATCH_TIMEZONE (.env)")
    assert found["providers.vastai.api_key"] == ("********", "env VAST_API_KEY")
    assert found["notify.telegram.bot_token"] == ("********", "credential gpuwatch_notify__telegram__bot_token")


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_show_never_shows_a_secret(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, form: list[str]
) -> None:
    (here / "gpuwatch.toml").write_text(
        """
        database_url = "postgresql://u:canary@h/db"
        [providers.vastai]
        api_key = "canary"
        [notify.email]
        host = "h"
        username = "u"
        password = "canary"
        sender = "a@b"
        recipients = ["c@d"]
        [[watch]]
        name = "w"
        gpu = "H100"
        max_price = 1
        [watch.launch]
        onstart = "export K=canary"
        env = { K = "canary" }
        """
    )
    monkeypatch.setenv("GPUWATCH_NOTIFY__APPRISE__URLS", '["ntfy://canary", "slack://canary"]')
    assert run(["config", "show", *form]) == Exit.DONE
    printed = capsys.readouterr()
    assert "canary" not in printed.out + printed.err
    assert "launch.env" in printed.out


def test_wrong_settings_are_reported_and_exit_with_2(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "gpuwatch.toml").write_text("dry_rum = true\n")
    assert run(["config", "show"]) == Exit.USAGE
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"{here}/gpuwatch.toml:1: dry_rum: unknown key; did you mean dry_run?\n"


def tables(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every property of a schema with its table."""
    for name, table in [("", schema), *schema["$defs"].items()]:
        for key, field in table.get("properties", {}).items():
            yield f"{name}.{key}", field


def test_schema_prints_json_with_a_description_on_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "schema", "--json"]) == Exit.DONE
    schema = json.loads(capsys.readouterr().out)
    assert not [key for key, field in tables(schema) if not field.get("description")]


UNITS = {"usd": "USD", "gb": "GB", "gib": "GiB", "mbps": "Mbit/s"}
TIMES = {"every", "for", "runtime", "within", "ttl", "interval", "timeout"}


def test_every_field_with_a_unit_says_it() -> None:
    described = [(key, set(key.rpartition(".")[2].split("_")), field) for key, field in tables(json_schema())]
    assert not [
        key
        for key, parts, field in described
        for part, unit in UNITS.items()
        if part in parts and unit.lower() not in field["description"].lower()
    ]
    a_time = re.compile(r"duration|interval|time|how long|maximum age", re.IGNORECASE)
    assert not [key for key, parts, field in described if parts & TIMES and not a_time.search(field["description"])]


def test_the_schema_knows_no_null_because_toml_has_none() -> None:
    assert '"null"' not in json.dumps(json_schema())
