"""The JSON Schema agrees with `load` about a settings file, as far as a schema can."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from gpuwatch.domain.setup.durations import parse_duration
from gpuwatch.domain.watches.windows import parse_window
from gpuwatch.settings.reference import json_schema
from gpuwatch.settings.show import template
from tests.settings.conftest import WATCH
from tests.settings.test_sources import CONTRACT

jsonschema = pytest.importorskip("jsonschema")

_BARE = re.sub(r"^# (?=\[[a-z.]+\]|[a-z_]+ =)", "", template(), flags=re.MULTILINE)


@pytest.fixture(scope="module")
def validator() -> Any:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    return jsonschema.Draft202012Validator(json_schema())


def errors(validator: Any, toml: str) -> list[str]:
    return [error.message for error in validator.iter_errors(tomllib.loads(toml))]


@pytest.mark.parametrize("toml", [template(), CONTRACT, WATCH, "", 'timezone = "Europe/Berlin"\n'])
def test_a_valid_file_is_valid(validator: Any, toml: str) -> None:
    assert errors(validator, toml) == []


@pytest.mark.parametrize(
    "toml",
    [
        "[providers.vast]\nenabled = true\n",
        "[providers.vastai]\ncommision = 0.2\n",
        "[providers.vastai]\ncommission = 20\n",
        '[providers.vastai]\npoll_every = "30"\n',
        "[providers.vastai]\npoll_every = 30\n",
        '[providers.vastai]\nsweep_every = "often"\n',
        'timezone = "Europe/Berln"\n',
        '[notify.telegramm]\nchat_id = 1\n',
        '[notify.telegram]\nchatid = 1\n',
        '[notify.email]\nhost = "h"\nsender = "a@b"\nrecipients = "c@d"\nport = 70000\n',
        '[[watch]]\nname = "one"\ngpu = "H100"\n',
        f'{WATCH}max_job_cost = 3\n',
        f'{WATCH}hold_for = "5 minutes"\n',
        f'{WATCH}repeat_every = "always"\n',
        f'{WATCH}active = ["25:00-26:00"]\n',
        f'{WATCH}active = "Someday"\n',
        f'{WATCH}launch = {{ max_runtime = "1 day" }}\n',
        f'{WATCH}actoin = "alert"\n',
    ],
)  # fmt: skip
def test_an_invalid_file_is_invalid(validator: Any, toml: str) -> None:
    assert errors(validator, toml) != []


@pytest.mark.parametrize(
    "news", ['new_low = "30d"', 'drop_by = "20%"', "percentile = 5", "restock = true", "usd_per_gib_hour = 0.02"]
)
def test_what_is_news_by_itself_needs_no_limit_unless_it_rents(validator: Any, news: str) -> None:
    watch = f'[[watch]]\nname = "one"\ngpu = "H100"\n{news}\n'
    assert errors(validator, watch) == []
    assert errors(validator, f'{watch}action = "launch"\n') != []
    assert errors(validator, f'{watch}action = "ask"\nmax_price = 2\n') == []


@pytest.mark.parametrize("text", ["90s", "15m", "6h", "2d", "1h30m", "0.5s", " 1D ", "0s"])
def test_durations_are_valid(validator: Any, text: str) -> None:
    assert parse_duration(text) >= 0
    assert errors(validator, f'{WATCH}hold_for = "{text}"\n') == []


@pytest.mark.parametrize(
    "text", ["22:00-08:00", "Mon-Fri 09:00-18:00", "Sat-Sun", "mon,wed,FRI", "Saturday 9:00-24:00", "22:00–08:00"]
)
def test_windows_are_valid(validator: Any, text: str) -> None:
    assert parse_window(text)
    assert errors(validator, f'{WATCH}active = "{text}"\n') == []


def test_the_uncommented_template_is_valid(validator: Any) -> None:
    assert "\n[watch.launch]" in _BARE
    assert errors(validator, _BARE) == []
