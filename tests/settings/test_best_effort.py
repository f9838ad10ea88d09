"""Settings for stopping: invalid parts are ignored and reported; settings that locate instances must be valid."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.domain.watches.launch_spec import HookSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.errors import SettingsError
from gpuwatch.secret import Secret
from gpuwatch.settings import Settings, load_for_stopping, probable_store_url
from tests.settings.conftest import WATCH

HEAD = """timezone = "Europe/Berlin"
database_url = "sqlite:////srv/g.db"
dry_run = false
[budget]
max_usd_hour = 5
[providers.vastai]
base_url = "http://127.0.0.1:1"
api_key = "the-key"
"""
RENTS = WATCH.replace('"one"', '"rents"') + 'action = "launch"\n[watch.launch]\nmax_runtime = "1h"\n'
Salvage = Callable[..., tuple[Settings, tuple[str, ...]]]


@pytest.fixture
def salvaged(home: Path) -> Salvage:
    def run(toml: str, **kwargs: Any) -> tuple[Settings, tuple[str, ...]]:
        (home / "gpuwatch.toml").write_text(toml)
        found = load_for_stopping(**{"env": {}, "cwd": home, **kwargs})
        return found.settings, found.lines

    return run


@pytest.mark.parametrize(
    ("broken", "gone"),
    [
        ('env = { X = { from_env = "X" }, Y = { from_env = "Y" } }', ["launch.env", "launch.env"]),
        ('onstart_file = "nowhere.sh"', ["launch.onstart_file"]),
        (
            'registry = { server = "h", username = "u", password = { from_file = "nowhere" } }',
            ["launch.registry"],
        ),
        ('max_runtimes = "1h"', ["launch.max_runtimes"]),
        ('max_active = "many"', ["launch.max_active"]),
        ("bid = { max = 2 }", ["launch.bid"]),
    ],
)
def test_of_a_launch_what_is_wrong_is_left_out_and_the_rest_is_as_it_is(
    salvaged: Salvage, broken: str, gone: list[str]
) -> None:
    """`before_stop` is also needed if another secret of the launch is not set."""
    settings, lines = salvaged(HEAD + RENTS + f'before_stop = "save"\n{broken}\n' + WATCH)
    assert [watch.name for watch in settings.watches] == ["rents", "one"]
    launch = settings.watches[0].launch
    assert launch is not None
    assert (launch.before_stop, launch.max_runtime_s) == (HookSpec(command="save"), 3600.0)
    assert settings.database_url == "sqlite:////srv/g.db"
    assert settings.timezone == "Europe/Berlin"
    vastai = settings.providers["vastai"]
    assert (vastai.base_url, vastai.api_key) == ("http://127.0.0.1:1", Secret("the-key"))
    assert all(': watch "rents": ' in line for line in lines)
    assert [line.rpartition("; ")[2] for line in lines] == [f"{one} is ignored" for one in gone]


def test_a_start_script_that_the_launch_cannot_have_takes_the_launch_along(salvaged: Salvage, home: Path) -> None:
    """The fault is in `onstart`, which the file does not have."""
    (home / "perl.sh").write_text("#!/usr/bin/perl\n")
    settings, lines = salvaged(HEAD + RENTS + 'onstart_file = "perl.sh"\nself_destruct = true\n')
    assert [watch.name for watch in settings.watches] == ["rents"]
    assert lines


@pytest.mark.parametrize("broken", ["max_prise = 1", 'gpu = "no such GPU"', "gpu = 5", 'name = "one"'])
def test_a_watch_is_left_out_where_it_is_none_without_what_is_wrong(salvaged: Salvage, broken: str) -> None:
    key = "max_price" if "prise" in broken else broken.partition(" =")[0]
    table = [line for line in RENTS.splitlines() if not line.startswith(key)]
    toml = HEAD + WATCH + "\n".join([table[0], broken, *table[1:]]) + "\n"
    settings, lines = salvaged(toml)
    assert [watch.name for watch in settings.watches] == ["one"]
    assert settings.left_out == {"one" if key == "name" else "rents": None}
    assert any(line.endswith("; this watch is ignored") for line in lines)


def test_nothing_is_rented_with_what_is_left(salvaged: Salvage) -> None:
    settings, _ = salvaged(HEAD + RENTS + WATCH + "bogus = 1\n")
    assert [(watch.name, watch.action) for watch in settings.watches] == [
        ("rents", Action.ALERT),
        ("one", Action.ALERT),
    ]
    assert settings.dry_run


def test_a_limit_that_is_refused_takes_the_action_alone(salvaged: Salvage) -> None:
    settings, (line,) = salvaged(HEAD.replace("max_usd_hour = 5", "") + RENTS)
    assert [watch.name for watch in settings.watches] == ["rents"]
    assert "max_usd_hour = 20.0 under [budget]" in line
    assert line.endswith("; action is ignored")


def test_a_watch_without_a_name_is_no_name(salvaged: Salvage) -> None:
    settings, lines = salvaged(HEAD + '[[watch]]\ngpu = "H100"\n' + WATCH)
    assert (settings.left_out, [watch.name for watch in settings.watches]) == ({}, ["one"])
    assert any("name: required key is missing" in line for line in lines)


def test_lines_name_the_place_in_the_file_also_after_an_earlier_watch_went(salvaged: Salvage) -> None:
    """A combined fault is found only when each key is valid: by then the earlier watches have moved up."""
    toml = HEAD + RENTS.replace('gpu = "H100"', "gpu = 5") + WATCH + WATCH
    number = toml[: toml.rindex('name = "one"')].count("\n") + 1
    settings, lines = salvaged(toml)
    assert len(lines) == 2
    assert f'gpuwatch.toml:{number}: watch "one": name: expected a unique name' in lines[1]
    assert (settings.left_out, [watch.name for watch in settings.watches]) == ({"rents": None, "one": None}, ["one"])


def test_several_faults_of_every_kind_are_a_line_each(salvaged: Salvage) -> None:
    toml = HEAD.replace("max_usd_hour = 5", 'max_usd_hour = "x"').replace("Europe/Berlin", "Mars/Base")
    toml = toml.replace("dry_run = false", "bogus = 1") + 'poll_every = "often"\n[notify.telegram]\nchat_id = 1.5\n'
    settings, lines = salvaged(toml + "[notify.email]\nhost = 1\n" + WATCH)
    assert len(lines) == 9
    assert (settings.timezone, settings.budget.max_usd_hour, settings.channels) == ("UTC", None, {})
    assert settings.providers["vastai"].api_key == Secret("the-key")
    assert sum("notify.telegram is ignored" in line for line in lines) == 2
    assert sum("notify.email is ignored" in line for line in lines) == 3


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('base_url = "http://127.0.0.1:1"', "base_url = 5"),
        ('base_url = "http://127.0.0.1:1"', 'base-url = "http://127.0.0.1:1"'),
        ('api_key = "the-key"', "api_key = 5"),
    ],
)
def test_a_provider_whose_address_or_key_is_in_doubt_is_not_asked_at_all(
    salvaged: Salvage, right: str, wrong: str
) -> None:
    """At its default address the instances would not be listed: they would seem to be gone."""
    settings, (line,) = salvaged(HEAD.replace(right, wrong), env={})
    assert settings.providers == {}
    assert line.endswith("; providers.vastai is ignored")


def test_a_provider_given_outside_that_cannot_be_read_is_not_asked(salvaged: Salvage) -> None:
    settings, (line,) = salvaged(HEAD, env={"GPUWATCH_PROVIDERS": "{"})
    assert settings.providers == {}
    assert line.startswith("GPUWATCH_PROVIDERS: ")


def test_a_secret_of_a_channel_that_cannot_be_read_costs_the_channel_alone(salvaged: Salvage) -> None:
    env = {"GPUWATCH_NOTIFY__TELEGRAM__BOT_TOKEN_FILE": "/no/such", "GPUWATCH_NOTIFY__TELEGRAM__CHAT_ID": "1"}
    settings, lines = salvaged(HEAD, env=env)
    assert "telegram" not in settings.channels
    assert settings.providers["vastai"].api_key == Secret("the-key")
    assert "the secret file /no/such cannot be read" in lines[0]


@pytest.mark.parametrize("text", ["[oops", "oops"])
def test_a_table_given_outside_that_cannot_be_read_leaves_the_one_of_the_file(salvaged: Salvage, text: str) -> None:
    """`before_stop` of a watch is needed, whatever a variable holds."""
    settings, (line,) = salvaged(HEAD + WATCH, env={"GPUWATCH_WATCH": text})
    assert [watch.name for watch in settings.watches] == ["one"]
    assert line.startswith("GPUWATCH_WATCH: watch: expected JSON")


@pytest.mark.parametrize("wrong", ['database_url = "oracle://x"', "database_url = 5"])
def test_a_wrong_database_is_no_other_database(salvaged: Salvage, wrong: str) -> None:
    with pytest.raises(SettingsError, match="database_url"):
        salvaged(HEAD.replace('database_url = "sqlite:////srv/g.db"', wrong) + WATCH + "bogus = 1\n")


def test_a_database_whose_address_cannot_be_read_is_not_replaced_by_the_default(salvaged: Salvage) -> None:
    with pytest.raises(SettingsError, match="/no/such"):
        salvaged("", env={"GPUWATCH_DATABASE_URL_FILE": "/no/such"})


def test_no_line_holds_a_secret(salvaged: Salvage) -> None:
    toml = HEAD.replace("base_url", "bas_url") + RENTS + 'env = { TOKEN = "s3cret-value" }\nbogus = "s3cret-value"\n'
    _, lines = salvaged(toml)
    assert lines
    assert not any("the-key" in line or "s3cret-value" in line for line in lines)


@pytest.mark.parametrize(
    ("toml", "env", "found"),
    [
        ('database_url = "sqlite:////srv/g.db"\nbroken = [\n', {}, "sqlite:////srv/g.db"),
        (
            'broken = "\n[x]\ndatabase_url = "sqlite:////srv/g.db"\n',
            {"STATE_DIRECTORY": "/s"},
            "sqlite:////s/gpuwatch.db",
        ),
        ("broken = [", {"GPUWATCH_DATABASE_URL": "sqlite:////e.db"}, "sqlite:////e.db"),
        ('database_url = "sqlite:////srv/g.db\n', {}, None),
    ],
)
def test_the_store_of_a_broken_file_is_guessed_by_its_line(
    home: Path, toml: str, env: dict[str, str], found: str | None
) -> None:
    (home / "gpuwatch.toml").write_text(toml)
    assert probable_store_url(env=env, cwd=home) == found
