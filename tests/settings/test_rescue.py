"""Settings for rescue mode: valid parts are used, unreadable ones are as last stored, and no secret is stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.domain.watches.watch import Action
from gpuwatch.secret import Secret
from gpuwatch.settings import Settings, load, store_last_good
from gpuwatch.settings.rescue import FILE, load_for_rescue, load_last_good, readable_part

GOOD = """dry_run = false
database_url = "sqlite:////srv/g.db"
[budget]
max_usd_hour = 5
[providers.vastai]
base_url = "http://127.0.0.1:1"
api_key = "the-key"
poll_every = "30s"
[notify.telegram]
bot_token = "123456:abcdefghijklmnopqrstuvwxyz"
chat_id = "1"
[[watch]]
name = "rents"
gpu = ["H100"]
max_price = 2
action = "launch"
[watch.launch]
max_runtime = "1h"
"""


class Place:
    """A folder with settings, and the state folder of their daemon."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {"STATE_DIRECTORY": str(folder / "state")}

    def good(self, text: str = GOOD) -> Settings:
        """Store them like a daemon that uses them."""
        self._write(text)
        settings = load(env=self.env, cwd=self.folder)
        store_last_good(settings, self.env)
        return settings

    def rescued(self, text: str | None, **env: str) -> tuple[Settings, str]:
        file = self.folder / "gpuwatch.toml"
        if text is None:
            file.unlink(missing_ok=True)
        else:
            self._write(text)
        found = load_for_rescue(str(file), env=self.env | env, cwd=self.folder)
        return found.settings, "\n".join(found.lines)

    def _write(self, text: str) -> None:
        (self.folder / "gpuwatch.toml").write_text(text)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_what_is_kept_holds_no_secret_and_is_for_its_owner_alone(place: Place, tmp_path: Path) -> None:
    place.good()
    kept = tmp_path / "state" / FILE
    assert kept.stat().st_mode & 0o777 == 0o600
    assert not any(secret in kept.read_bytes() for secret in (b"the-key", b"abcdefghijklmnopqrstuvwxyz"))
    found = load_last_good(place.env)
    assert found is not None
    assert found.providers["vastai"].base_url == "http://127.0.0.1:1"
    assert repr(found.providers["vastai"].api_key) == "Secret('file')"


@pytest.mark.parametrize(
    "breakage",
    [
        lambda text: text.replace("max_price = 2", "max_price = = 2"),
        lambda text: text.replace('["H100"]', '["H100"'),
        lambda text: text.replace("[notify.telegram]", "[notify.telegram"),
        lambda text: text.replace("[providers.vastai]", "[providers.vastai"),
        lambda text: text.replace("[[watch]]", "[[watch]"),
        lambda text: text.replace('poll_every = "30s"', 'poll_every = "30s'),
        lambda text: text.replace('base_url = "http://127.0.0.1:1"', 'base_url = "http://127.0.0.1:1'),
        lambda text: text.replace('"sqlite:////srv/g.db"', '"sqlite:////srv/g.db'),
        lambda text: text.replace('base_url = "http', 'base_url = "htp'),
        lambda text: text.replace('chat_id = "1"\n', ""),
        lambda text: text.replace('name = "rents"\n', ""),
        lambda text: text.replace("max_usd_hour = 5", "max_usd_hour = -5"),
        lambda text: text + 'onstart = """\nbash train.sh\n',
    ],
)
def test_whatever_is_broken_the_provider_its_key_the_channel_and_the_watch_are_as_they_were(
    place: Place, breakage: Callable[[str], str]
) -> None:
    place.good()
    broken = breakage(GOOD)
    assert broken != GOOD
    settings, lines = place.rescued(broken)
    assert lines
    vastai = settings.providers["vastai"]
    assert (vastai.base_url, vastai.api_key, vastai.poll_every_s) == ("http://127.0.0.1:1", Secret("the-key"), 30.0)
    assert settings.channels["telegram"].options["chat_id"] == "1"
    assert settings.channels["telegram"].secrets["bot_token"].reveal() == "123456:abcdefghijklmnopqrstuvwxyz"
    assert settings.database_url == "sqlite:////srv/g.db"
    assert [watch.name for watch in settings.watches] == ["rents"]


def test_nothing_may_be_rented_with_them(place: Place) -> None:
    place.good()
    for text in (GOOD.replace('"launch"', "launch"), GOOD.replace("max_price = 2", "max_price = -2"), None):
        settings, _ = place.rescued(text)
        assert settings.dry_run
        assert {watch.action for watch in settings.watches} == {Action.ALERT}


def test_without_a_file_the_keys_of_the_environment_meet_the_addresses_of_before(place: Place) -> None:
    """Never the default address: an instance would seem to be gone there."""
    place.good()
    settings, lines = place.rescued(None, VAST_API_KEY="another-key")
    assert (settings.providers["vastai"].base_url, settings.providers["vastai"].api_key) == (
        "http://127.0.0.1:1",
        Secret("another-key"),
    )
    assert "no such file" in lines


@pytest.mark.parametrize("text", [None, GOOD.replace('base_url = "http', 'base_url = = "http')])
def test_an_address_that_nobody_knows_is_not_guessed(place: Place, text: str | None) -> None:
    settings, _ = place.rescued(text, VAST_API_KEY="the-key")
    assert "vastai" not in settings.providers


def test_what_is_right_in_them_counts_not_what_was_before(place: Place) -> None:
    place.good()
    newer = GOOD.replace("the-key", "newer-key").replace('poll_every = "30s"', 'poll_every = "45s"')
    settings, _ = place.rescued(newer.replace("max_price = 2", "max_price = = 2"))
    assert (settings.providers["vastai"].api_key, settings.providers["vastai"].poll_every_s) == (
        Secret("newer-key"),
        45.0,
    )


def test_a_table_below_a_header_that_nobody_can_read_joins_no_other() -> None:
    part = readable_part(
        '[providers.vastai]\nbase_url = "a"\n[providers.?]\napi_key = "b"\n[budget]\nmax_usd_day = 1\n'
    )
    assert part.tree == {"providers": {"vastai": {"base_url": "a"}}, "budget": {"max_usd_day": 1}}
    assert part.lines == (3, 4)


@pytest.mark.parametrize("text", ["\x00", "[" * 5000, "= \n" * 2000, '"""', "a = [\n" * 50])
def test_rubbish_ends(text: str) -> None:
    assert readable_part(text).tree == {}


def test_rescued_settings_are_those_of_the_same_owner(tmp_path: Path) -> None:
    """Those of another one would lead in its place, and abandon what this one rents."""
    place = Place(tmp_path)
    place.good('owner = "lab"\n' + GOOD)
    for broken in (None, "owner = 3\n" + GOOD, "owner = [" + GOOD, 'owner = "job"\n' + GOOD):
        rescued, _ = place.rescued(broken, VASTAI_API_KEY="the-key")
        assert (rescued.owner, [watch.name for watch in rescued.watches]) == ("lab", ["lab::rents"]), broken
