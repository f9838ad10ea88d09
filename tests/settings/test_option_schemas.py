"""Keys declared by providers and plugins: from every source, validated, shown, masked."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuwatch import bootstrap
from gpuwatch.errors import SettingsError
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.settings import load, load_for_stopping, store_last_good
from gpuwatch.settings.reference import json_schema
from gpuwatch.settings.show import MASK, _masked, origins, template
from tests.plugins.packages import CHANNEL, install, provider_source
from tests.settings.conftest import WATCH, Loader

OPTIONS = """(
    OptionSpec(name="zone", kind="text", about="Where.", default="north", choices=("north", "south")),
    OptionSpec(name="share", kind="number", about="How much.", default=0.5, least=0.1),
    OptionSpec(name="strict", kind="switch", about="Really?", default=False),
    OptionSpec(name="projects", kind="texts", about="Which ones."),
    OptionSpec(name="second_key", kind="text", about="Another key.", secret=True),
)"""
SECRET = "second-secret-4711"
TOKEN = "pager-token-0815"
Faults = Callable[..., tuple[str, ...]]
ACME = "[providers.acme.options]\n"
PAGER = f'[notify.pager]\ntoken = "{TOKEN}"\n'


@pytest.fixture(autouse=True)
def _plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A provider and a channel of other packages."""
    modules = {"acme_gpus": provider_source("acme", OPTIONS, "key_names=('ACME_KEY',)"), "pager_channel": CHANNEL}
    groups = {"gpuwatch.providers": {"acme": "acme_gpus"}, "gpuwatch.notifiers": {"pager": "pager_channel"}}
    monkeypatch.syspath_prepend(str(install(tmp_path / "site", "acme", modules, groups)))
    yield
    for name in modules:
        sys.modules.pop(name, None)


def options(loaded: Loader, toml: str, **env: str) -> dict[str, Any]:
    """The options that the adapter receives."""
    return dict(loaded(toml, env=env).providers["acme"].revealed().options)


def test_options_come_complete_with_their_defaults(loaded: Loader) -> None:
    assert options(loaded, "[providers.acme]\n") == {
        "zone": "north", "share": 0.5, "strict": False, "projects": None, "second_key": None,
    }  # fmt: skip


def test_options_are_read_from_the_file_and_the_environment_wins(loaded: Loader) -> None:
    toml = f'{ACME}zone = "south"\nshare = 2\nstrict = true\nprojects = ["a", "b"]\nsecond_key = "{SECRET}"\n'
    assert options(loaded, toml) == {
        "zone": "south", "share": 2.0, "strict": True, "projects": ("a", "b"), "second_key": SECRET,
    }  # fmt: skip
    found = options(
        loaded,
        toml,
        GPUWATCH_PROVIDERS__ACME__OPTIONS__ZONE="north",
        GPUWATCH_PROVIDERS__ACME__OPTIONS__SHARE="0.25",
        GPUWATCH_PROVIDERS__ACME__OPTIONS__STRICT="false",
        GPUWATCH_PROVIDERS__ACME__OPTIONS__PROJECTS="c,d",
    )
    assert found["zone"] == "north"
    assert (found["share"], found["strict"], found["projects"]) == (0.25, False, ("c", "d"))
    assert found["second_key"] == SECRET


def test_a_whole_table_of_options_may_come_as_json(loaded: Loader) -> None:
    found = options(loaded, "", GPUWATCH_PROVIDERS__ACME__OPTIONS='{"zone": "south", "projects": ["x"]}')
    assert (found["zone"], found["projects"]) == ("south", ("x",))


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('zone = "east"', "expected one of north, south"),
        ("zone = 3", "expected text in quotes, on one line"),
        ('zone = ""', "expected text in quotes, on one line"),
        ("share = 0", "expected a number of at least 0.1"),
        ("share = nan", "expected a number of at least 0.1"),
        ('share = "much"', "expected a number of at least 0.1"),
        ("share = true", "expected a number of at least 0.1"),
        ('strict = "maybe"', "expected true or false"),
        ("strict = 1", "expected true or false"),
        ("projects = []", 'expected a list of texts, such as ["one", "two"]'),
        ("projects = [1]", "expected text in quotes, on one line"),
        ('zones = "north"', "unknown key; did you mean zone?"),
        ("other = 1", "unknown key; expected one of zone, share, strict, projects, second_key"),
    ],
)
def test_a_wrong_option_is_one_line_with_file_line_key_and_what_was_expected(
    faults: Faults, home: Path, line: str, text: str
) -> None:
    key = line.partition(" ")[0]
    (found,) = faults(f"[providers.acme]\n{ACME}{line}\n")
    assert found == f"{home / 'gpuwatch.toml'}:3: providers.acme.options.{key}: {text}"


def test_a_wrong_option_is_reported_beside_the_other_faults(faults: Faults) -> None:
    """After fixing one error, the owner must not meet the other one at the next start."""
    reported = faults('[providers.acme]\ntimeout = "soon"\n[providers.acme.options]\nzone = "west"\nzones = "north"\n')
    assert sorted(line.split(": ")[1] for line in reported) == [
        "providers.acme.options.zone", "providers.acme.options.zones", "providers.acme.timeout",
    ]  # fmt: skip


def test_a_wrong_option_of_the_environment_names_its_variable(faults: Faults) -> None:
    (found,) = faults("", env={"GPUWATCH_PROVIDERS__ACME__OPTIONS__SHARE": "lots"})
    expected = "expected a number of at least 0.1"
    assert found == f"GPUWATCH_PROVIDERS__ACME__OPTIONS__SHARE: providers.acme.options.share: {expected}"


def test_a_file_that_is_named_is_named_in_its_faults(home: Path) -> None:
    (home / "mine.toml").write_text(f"{ACME}share = -1\n")
    with pytest.raises(SettingsError) as caught:
        load("mine.toml", env={}, cwd=home)
    assert str(caught.value).startswith(f"{home / 'mine.toml'}:2: providers.acme.options.share: ")


def test_a_provider_without_options_says_so(faults: Faults) -> None:
    (found,) = faults("[providers.vastai.options]\nzone = 1\n")
    assert found.endswith("providers.vastai.options.zone: unknown key; expected an empty table")


def test_options_that_are_no_table_are_a_fault(faults: Faults) -> None:
    (found,) = faults("[providers.acme]\noptions = 3\n")
    assert found.endswith("providers.acme.options: expected a table")


def test_for_stopping_a_provider_with_a_wrong_option_is_left_out_as_a_whole(home: Path) -> None:
    """An option may select an account or region: in the wrong one an instance would seem to be gone."""
    (home / "gpuwatch.toml").write_text(f'[providers.acme]\nenabled = true\n{ACME}zone = "east"\n{WATCH}')
    found = load_for_stopping(env={}, cwd=home)
    assert "acme" not in found.settings.providers
    assert found.lines == (
        f"{home / 'gpuwatch.toml'}:4: providers.acme.options.zone: expected one of north, south; "
        "providers.acme is ignored",
    )


# --- secrets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["variable", "file", "credential", "dotenv"])
def test_a_secret_option_may_come_from_wherever_secrets_come_from(loaded: Loader, tmp_path: Path, how: str) -> None:
    variable = "GPUWATCH_PROVIDERS__ACME__OPTIONS__SECOND_KEY"
    (tmp_path / variable.lower()).write_text(f"{SECRET}\n")
    env = {
        "variable": {variable: SECRET},
        "file": {f"{variable}_FILE": str(tmp_path / variable.lower())},
        "credential": {"CREDENTIALS_DIRECTORY": str(tmp_path)},
        "dotenv": {},
    }[how]
    settings = loaded("[providers.acme]\n", env=env, dotenv=f"{variable}={SECRET}\n" if how == "dotenv" else None)
    assert settings.providers["acme"].secrets["second_key"].reveal() == SECRET


def test_declared_secrets_are_masked_where_settings_are_shown(home: Path) -> None:
    (home / "gpuwatch.toml").write_text(f'{ACME}second_key = "{SECRET}"\nzone = "south"\n{PAGER}')
    env = {"GPUWATCH_NOTIFY__PAGER__VOLUME": "7"}
    _, found = origins(env=env, cwd=home)
    shown = {one.key: (one.value, one.origin) for one in found}
    assert shown["providers.acme.options.second_key"] == ("********", "file")
    assert shown["providers.acme.options.zone"] == ("south", "file")
    assert shown["providers.acme.options.share"] == (0.5, "default")
    assert shown["notify.pager.token"] == ("********", "file")
    assert shown["notify.pager.volume"] == (7, "env GPUWATCH_NOTIFY__PAGER__VOLUME")
    assert SECRET not in repr(found)
    assert TOKEN not in repr(found)


def test_declared_secrets_are_blanked_out_of_every_text(loaded: Loader) -> None:
    settings = loaded(f'{ACME}second_key = "{SECRET}"\n{PAGER}')
    assert {SECRET, TOKEN} <= set(bootstrap.secrets_of(settings))
    assert SECRET not in repr(settings.providers)
    assert TOKEN not in repr(settings.channels)


def test_the_kept_copy_holds_no_declared_secret(loaded: Loader, tmp_path: Path) -> None:
    settings = loaded(f'{ACME}second_key = "{SECRET}"\nprojects = ["a"]\nshare = 3\n{PAGER}')
    assert settings.providers["acme"].revealed().options == {
        "zone": "north", "share": 3.0, "strict": False, "projects": ("a",), "second_key": SECRET,
    }  # fmt: skip
    assert settings.channels["pager"].revealed().options["token"] == TOKEN
    store_last_good(settings, {"STATE_DIRECTORY": str(tmp_path / "state")})
    [kept] = (tmp_path / "state").iterdir()
    assert SECRET.encode() not in kept.read_bytes()
    assert TOKEN.encode() not in kept.read_bytes()


def test_a_settings_file_that_others_can_read_is_reported_for_declared_secrets_too(
    loaded: Loader, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (home / "gpuwatch.toml").write_text(f'{ACME}second_key = "{SECRET}"\n')
    (home / "gpuwatch.toml").chmod(0o644)
    loaded()
    assert "every user of this machine can read its secrets; run:" in caplog.text


# --- channels of plugins ----------------------------------------------------------------------------------------------


def test_a_channel_of_a_plugin_is_set_up_by_its_table(loaded: Loader) -> None:
    settings = loaded(f'{PAGER}volume = 5\n{WATCH}notify = ["pager"]\n')
    assert tuple(settings.channels) == ("pager",)
    assert settings.watches[0].notify == ("pager",)
    http = PooledHttpClient()
    try:
        channels = bootstrap.build_channels(settings, http)
    finally:
        http.close()
    assert list(channels) == ["pager"]


@pytest.mark.parametrize(
    ("toml", "text"),
    [
        ("[notify.pager]\nvolume = 1\n", "notify.pager.token: required key is missing; expected: The pager's token."),
        (f"{PAGER}volume = -1\n", "notify.pager.volume: expected a number of at least 0"),
        (f"{PAGER}beep = 1\n", "notify.pager.beep: unknown key; expected one of token, volume"),
        ("[notify]\npager = 3\n", "notify.pager: expected a table"),
        ("[notify.pagers]\nx = 1\n", "notify.pagers: unknown key; did you mean pager?"),
        (f'{WATCH}notify = ["pager"]\n', "'pager' is not configured; use one of: none (or add [notify.pager])"),
    ],
)
def test_a_channel_that_is_set_up_wrongly_is_reported(faults: Faults, toml: str, text: str) -> None:
    (found,) = faults(toml)
    assert text in found


def test_an_empty_table_of_a_plugin_is_no_channel(loaded: Loader) -> None:
    assert loaded("[notify.pager]\n").channels == {}


# --- editors and `init` -----------------------------------------------------------------------------------------------


def test_the_schema_describes_each_option_of_each_provider() -> None:
    schema = json_schema()
    mine = schema["properties"]["providers"]["properties"]["acme"]["properties"]["options"]
    assert mine["properties"]["zone"] == {
        "type": "string", "enum": ["north", "south"], "description": "Where.", "default": "north",
    }  # fmt: skip
    assert mine["properties"]["share"]["minimum"] == 0.1
    assert mine["properties"]["second_key"]["writeOnly"] is True
    assert mine["additionalProperties"] is False
    pager = schema["properties"]["notify"]["properties"]["pager"]
    assert "required" not in pager  # the secret may come from the environment
    assert json.loads(json.dumps(schema)) == schema


def test_the_template_of_init_has_a_section_for_each_channel() -> None:
    """From the channel's declaration; a provider's section exists if the provider declares one."""
    assert "acme" not in template()
    assert "# [notify.pager]\n# # secret, prefer the environment: GPUWATCH_NOTIFY__PAGER__TOKEN\n" in template()
    assert "# volume = 3.0                    # How loud.\n" in template()


def test_settings_with_options_survive_msgpack(loaded: Loader) -> None:
    settings = loaded("[providers.acme]\n")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(settings), type=type(settings)) == settings


def test_a_password_is_masked_although_its_plugin_does_not_call_it_a_secret() -> None:
    assert _masked("password", "hunter2-hunter2") == MASK
    assert _masked("urls", ["ntfy://secret-topic"]) == [MASK]
