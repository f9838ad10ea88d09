"""Valid but unwise settings cause one warning in the log, which never quotes a secret."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.settings.conftest import WATCH

KEY = '[providers.vastai]\napi_key = "s3cr3t"\n'


@pytest.fixture
def warnings(loaded: Any, caplog: pytest.LogCaptureFixture) -> Any:
    """Return the warnings of one `load`."""

    def run(*args: Any, **kwargs: Any) -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "gpuwatch.settings"):
            loaded(*args, **kwargs)
        return [record.getMessage() for record in caplog.records]

    return run


@pytest.mark.parametrize(
    ("line", "key"), [('prefer = "fastest-per-dollar"\n', "prefer"), ("tie = 0.02\n", "tie"), ("", None)]
)
def test_a_choice_beside_the_cost_of_a_job_has_no_effect(warnings: Any, line: str, key: str | None) -> None:
    watch = '[[watch]]\nname = "one"\ngpu = "H100"\n'
    job = '[watch.job]\nhours = 3\non = "1x H100"\n'
    said = [text for text in warnings(f"{watch}max_job_cost = 20\n{line}{job}") if "no effect" in text]
    why = "has no effect with max_job_cost, which limits the cost of the whole job; remove it"
    assert said == ([] if key is None else [f'watch "one": {key} {why}'])
    assert not any("no effect" in text for text in warnings(f"{watch}max_price = 2\n{line}"))


@pytest.mark.parametrize("length", [20, 21, 38])
def test_a_label_text_that_would_be_cut_is_reported(warnings: Any, length: int) -> None:
    launch = f'[watch.launch]\nlabel_extra = "{"x" * length}"\n'
    said = warnings(f'[[watch]]\nname = "one"\ngpu = "H100"\nmax_price = 2\n{launch}')
    assert any("label_extra is longer than 20" in text for text in said) is (length > 20)


@pytest.mark.parametrize(("action", "is_reported"), [("alert", True), ("ask", False), ("launch", False)])
def test_launches_per_day_of_a_watch_that_rents_nothing_have_no_effect(
    warnings: Any, action: str, is_reported: bool
) -> None:
    said = warnings(f'[[watch]]\nname = "one"\ngpu = "H100"\nmax_price = 2\nmax_per_day = 3\naction = "{action}"\n')
    assert any('"one": max_per_day has no effect' in text for text in said) is is_reported


@pytest.mark.parametrize(
    ("lines", "is_reported"),
    [
        ('providers = ["runpod"]\nspot = "only"', True),
        ('providers = ["runpod", "vastai"]\nspot = "only"', True),
        ('spot = "only"', False),
        ('providers = ["runpod"]\nspot = "any"', False),
        ('providers = ["vastai"]\nspot = "only"', False),
    ],
)
def test_a_spot_watch_of_a_provider_without_spot_finds_nothing_there(
    warnings: Any, lines: str, is_reported: bool
) -> None:
    watch = f'[[watch]]\nname = "one"\ngpu = "H100"\nmax_price = 2\n{lines}\n'
    said = [text for text in warnings(f"[providers.runpod]\nenabled = true\n{watch}") if "no spot" in text]
    expected = 'watch "one": runpod offers no spot instances: with spot = "only" it finds nothing there'
    assert said == ([expected] if is_reported else [])


@pytest.mark.parametrize(("mode", "reported"), [(0o604, True), (0o644, True), (0o640, False), (0o600, False)])
def test_a_secret_file_that_others_can_read_is_reported(
    warnings: Any, tmp_path: Path, mode: int, reported: bool
) -> None:
    file = tmp_path / "key"
    file.write_text("s3cr3t")
    file.chmod(mode)
    said = warnings("", env={"VAST_API_KEY_FILE": str(file)})
    assert said == (
        [f"{file}: every user of this machine can read its secrets; run: chmod 600 {file}"] if reported else []
    )


@pytest.mark.parametrize(("toml", "dotenv"), [(KEY, None), ("", "VAST_API_KEY=s3cr3t\n")])
def test_so_are_settings_and_dotenv_that_hold_a_secret(
    warnings: Any, home: Path, toml: str, dotenv: str | None
) -> None:
    file = home / (".env" if dotenv else "gpuwatch.toml")
    file.touch()
    file.chmod(0o644)
    (said,) = warnings(toml, dotenv)
    assert said.startswith(f"{file}: every user")


def test_a_table_from_a_variable_hides_no_secret_of_the_file(warnings: Any, home: Path) -> None:
    (home / "gpuwatch.toml").touch()
    (home / "gpuwatch.toml").chmod(0o644)
    (said,) = warnings(KEY, env={"GPUWATCH_PROVIDERS": '{"vastai": {"poll_every": "5s"}}'})
    assert said.startswith(f"{home}/gpuwatch.toml: every user")


def test_files_without_a_secret_may_be_read_by_all(warnings: Any, home: Path) -> None:
    for name in ("gpuwatch.toml", ".env"):
        (home / name).touch()
        (home / name).chmod(0o644)
    toml = 'dry_run = true\ndatabase_url = "sqlite:///gpuwatch.db"\n'
    assert warnings(toml, "GPUWATCH_TIMEZONE=UTC\n", env={"VAST_API_KEY": "s3cr3t"}) == []


@pytest.mark.parametrize(
    ("base_url", "reported"),
    [
        ("http://proxy.example.org", True),
        ("http://127.evil.example.org", True),
        ("http://10.0.0.1:8080", True),
        ("http://127.0.0.1:8080", False),
        ("http://[::1]:8080", False),
        ("http://localhost", False),
        ("https://proxy.example.org", False),
    ],
)
def test_a_key_over_plain_http_is_reported_unless_it_stays_here(warnings: Any, base_url: str, reported: bool) -> None:
    toml = f'[providers.vastai]\nbase_url = "{base_url}"\n'
    said = warnings(toml, env={"VAST_API_KEY": "s3cr3t"})
    expected = "providers.vastai.base_url: the secret is sent unencrypted; use https://"
    assert said == ([expected] if reported else [])


def test_plain_http_without_a_key_is_nobodys_concern(warnings: Any) -> None:
    assert warnings('[providers.vastai]\nbase_url = "http://proxy.example.org"\n') == []


@pytest.mark.parametrize(
    ("gpu", "reported"), [("RTX 6000", True), ("RTX 6000 Ada", False), ("A100", False), ("RTX PRO 6000", False)]
)
def test_a_name_of_several_cards_is_reported_with_the_names_to_write(warnings: Any, gpu: str, reported: bool) -> None:
    said = warnings(f'[[watch]]\nname = "w"\ngpu = "{gpu}"\nmax_price = 1.0\n')
    expected = f"watch \"w\": gpu '{gpu}' is ambiguous: write RTX PRO 6000 or RTX 6000 Ada or Quadro RTX 6000"
    assert said == ([expected] if reported else [])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("max_price = 350", 'watch "one": max_price = 350 is per GPU and hour, where no provider charges'),
        ("max_price = 30", "more than about 24 USD; is it the price of a whole machine?"),
        ('max_price = "auto"\nmax_price_cap = 350\ndeadline = "2d"', "max_price_cap = 350 is per GPU and hour"),
    ],
)
def test_a_price_that_no_provider_asks_for_one_gpu_is_questioned(
    loaded: Any, caplog: pytest.LogCaptureFixture, change: str, said: str
) -> None:
    loaded(WATCH.replace("max_price = 3.60", change))
    assert said in caplog.text


def test_a_dear_but_real_price_is_not_questioned(loaded: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Azure lists an H100 at 15.36 USD; with 20 % on top that is 18.43."""
    loaded(WATCH.replace("3.60", "18.43"))
    assert caplog.text == ""


def test_a_commission_in_percent_is_questioned(loaded: Any, caplog: pytest.LogCaptureFixture) -> None:
    loaded("[providers.vastai]\ncommission = 5\n")
    assert "providers.vastai.commission = 5 adds 500 % to every price; 5 % is 0.05" in caplog.text


RENTS = '[watch.launch]\nmax_runtime = "1h"\n'


@pytest.mark.parametrize(
    ("given", "least"),
    [
        ('hold_for = "59s"\n', 'hold_for = 59s is shorter than two observations: offers are polled every 30s; '
         "set at least 1m"),
        (f'{RENTS}idle_below = 10\nidle_for = "19s"\n', "launch.idle_for = 19s is shorter than two observations: "
         "instances are listed every 10s; set at least 20s"),
        (f'{RENTS}wasteful_below = 10\nwasteful_for = "5s"\n', "set at least 20s"),
        (f'{RENTS}ready_within = "5s"\n', "launch.ready_within = 5s is shorter than two observations: instances that "
         "start are listed every 3s; set at least 6s"),
        ('[watch.launch]\nmax_runtime = "15s"\n', "launch.max_runtime = 15s"),
    ],
)  # fmt: skip
def test_a_duration_under_two_observations_is_named_with_its_least_sensible_value(
    warnings: Any, given: str, least: str
) -> None:
    (said,) = warnings(WATCH + given)
    assert said.startswith('watch "one": ')
    assert least in said


@pytest.mark.parametrize(
    "given",
    [
        'hold_for = "1m"\n', 'hold_for = "0s"\n', f'{RENTS}idle_below = 10\nidle_for = "20s"\nready_within = "6s"\n'
    ],
)  # fmt: skip
def test_longer_durations_are_not(warnings: Any, given: str) -> None:
    assert warnings(WATCH + given) == []


def test_many_watches_make_the_interval_longer(warnings: Any) -> None:
    """Seven searches six seconds apart are 42 s."""
    watches = "".join(f'[[watch]]\nname = "w{n}"\ngpu = "H100"\nmax_price = {n + 1}\n' for n in range(6))
    (said,) = warnings(watches + '[[watch]]\nname = "last"\ngpu = "A100"\nmax_price = 1\nhold_for = "1m"\n')
    assert "every 42s; set at least 1m24s" in said
