"""An error stops the program, with one line: where, which key, and what was expected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuwatch.errors import SettingsError

WATCH = '[[watch]]\nname = "one"\ngpu = "H100"\nmax_price = 3.60\n'


def test_every_fault_is_reported_at_once_with_file_line_and_key(faults: Any, home: Path) -> None:
    found = faults('timezoen = "UTC"\ndry_run = "true"\n[providers.vastai]\n\npoll_every = "0.5s"\n')
    file = home / "gpuwatch.toml"
    assert set(found) == {
        f"{file}:1: timezoen: unknown key; did you mean timezone?",
        f"{file}:2: dry_run: expected true or false",
        f"{file}:5: providers.vastai.poll_every: expected a duration of at least 1s",
    }


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        ("[providers.runpodd]\n", "providers.runpodd: unknown provider"),
        ("[providers.vastia]\n", "did you mean vastai?"),
        ('[providers.vastai]\nbase_url = "ftp://x"\n', "expected an http:// or https:// address"),
        ('[providers.vastai]\nbase_url = "https://me:pw@x"\n', "expected an address without user and password"),
        (
            "[providers.vastai]\ncommission = -0.1\n",
            "commission.rate: expected a fraction of the listed price",
        ),
        (
            "[providers.vastai]\ncommission = 10.1\n",
            "commission.rate: expected a fraction of the listed price",
        ),
        ('[providers.vastai]\ncommission = "0.2"\n', "commission: expected a number from 0 to 10"),
        ("[providers.vastai]\nrows_per_day = -1\n", "rows_per_day: expected a number of at least 0"),
        ("[providers.vastai]\nrows_per_day = 1.5\n", "rows_per_day: expected a whole number"),
        ('[providers.vastai]\nsweep_every = "0.5s"\n', 'sweep_every: expected "auto", or a duration'),
        ("[providers.vastai]\npoll_every = 30\n", "poll_every: expected a duration in quotes"),
        ('[web]\ntokens = [{ name = "a", token = "short" }]\n', "tokens[0].token: expected at least 16 characters"),
        (
            '[web]\ntrusted_hosts = ["gpu.example.org:8642"]\n',
            "trusted_hosts: expected host names without scheme and port",
        ),
        ('[web]\ntrusted_hosts = ["*.example.org"]\n', "trusted_hosts: expected host names without scheme and port"),
        ('timezone = "Mars/Base"\n', "timezone: expected the name of a time zone"),
        ('timezone = "../../etc/passwd"\n', "timezone: expected the name of a time zone"),
        ('database_url = "mysql://x/y"\n', "database_url: expected"),
        ('database_url = "sqlite://"\n', "database_url: expected a file"),
        ("[budget]\nmax_usd_hour = nan\n", "budget.max_usd_hour: expected a finite number"),
        ("[budget]\nmax_usd_hour = inf\n", "budget.max_usd_hour: expected a finite number"),
        ("[budget]\nmax_usd_hour = 0\n", "budget.max_usd_hour: expected a number above 0"),
        ("[budget]\nmax_usd_hour = true\n", "budget.max_usd_hour: expected a number"),
        ("budget = 3\n", "budget: expected a table"),
        ("watch = 3\n", "watch: expected [[watch]]"),
        ('[watch]\nname = "x"\n', "watch: expected [[watch]]"),
        ('[record]\ngpu = "H1000x"\n', "record.gpu: unknown GPU 'H1000x'"),
        ('[notify.telegram]\nbot_token = "1:x"\n', "notify.telegram.chat_id: required key is missing"),
        ('_env_file = "x"\n', "_env_file: unknown key"),
        ("self = 1\n", "self: unknown key"),
    ],
)
def test_an_impossible_value_is_a_fault(faults: Any, toml: str, expected: str) -> None:
    assert any(expected in fault for fault in faults(toml))


def test_a_watch_is_named_by_its_name(faults: Any, home: Path) -> None:
    (fault,) = faults(WATCH + "max_prise = 3\n")
    assert fault == f'{home}/gpuwatch.toml:5: watch "one": max_prise: unknown key; did you mean max_price?'


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("max_usd_per_gpu_hour = 2", "max_price"),
        ("max_price_per_gpu = 2", "max_price"),
        ("gpus = 2", "gpu_count"),
        ('country = "DE"', "regions"),
        ("use_spot = true", "spot"),
    ],
)
def test_a_word_of_another_program_is_understood(faults: Any, line: str, meant: str) -> None:
    (fault,) = faults(f"{WATCH}{line}\n")
    assert fault.endswith(f"unknown key; did you mean {meant}?")


@pytest.mark.parametrize("lines", ["[provider.vastai]", "[provider.vastai]\napi_key = 1", "provider.vastai.x = 1"])
def test_an_unknown_table_is_reported_with_its_line_if_only_a_table_below_it_is_in_the_file(
    faults: Any, home: Path, lines: str
) -> None:
    (fault,) = faults(f"\n\n{lines}\n")
    assert fault == f"{home}/gpuwatch.toml:3: provider: unknown key; did you mean providers?"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ('gather = "3s"', "gather: unknown key here; gather belongs in [launch]"),
        ('max_runtime = "3h"', "max_runtime: unknown key here; max_runtime belongs in [watch.launch]"),
        ("launch.max_per_day = 3", "max_per_day: unknown key here; max_per_day belongs in [[watch]]"),
    ],
)
def test_a_key_of_another_section_is_named_with_that_section(faults: Any, lines: str, expected: str) -> None:
    (fault,) = faults(f"{WATCH}{lines}\n")
    assert fault.endswith(expected)


def test_the_second_of_two_watches_is_found_in_the_file(faults: Any, home: Path) -> None:
    (fault,) = faults(WATCH + WATCH.replace("one", "two") + "[watch.launch]\nmax_runtme = 1\n")
    assert fault.startswith(f'{home}/gpuwatch.toml:10: watch "two": launch.max_runtme: ')


def test_two_watches_of_one_name_are_a_fault(faults: Any) -> None:
    (fault,) = faults(WATCH + WATCH)
    assert ':6: watch "one": name: expected a unique name' in fault


@pytest.mark.parametrize(
    ("toml", "line"),
    [("x = = 3", 1), ('a = 1\nb = "open\nc = 1', 2), ("a = 1\na = 2", 2), (b"a = 1\n# \xff", 2), ("a = 1\n[b", 2)],
)
def test_a_syntax_fault_is_one_line_with_its_number(faults: Any, home: Path, toml: str | bytes, line: int) -> None:
    (fault,) = faults(toml)
    assert fault.startswith(f"{home}/gpuwatch.toml:{line}: ")
    assert "\n" not in fault


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("GPUWATCH_FOO", "1", "GPUWATCH_FOO: foo: unknown key"),
        ("GPUWATCH_FOO__BAR", "1", "GPUWATCH_FOO__BAR: foo: unknown key"),
        ("GPUWATCH_PROVIDER__VASTAI__API_KEY", "1", "provider: unknown key; did you mean providers?"),
        ("GPUWATCH_DRY_RUN", "maybe", "GPUWATCH_DRY_RUN: dry_run: expected true or false"),
        ("GPUWATCH_PROVIDERS__VASTAI__POLL_EVRY", "3s", "did you mean poll_every?"),
        ("GPUWATCH_BUDGET", "{oops", "GPUWATCH_BUDGET: budget: expected JSON"),
        ("GPUWATCH_WATCH", "oops", "GPUWATCH_WATCH: watch: expected JSON"),
        ("GPUWATCH_NOTIFY__TELEGRAM", "oops", "GPUWATCH_NOTIFY__TELEGRAM: notify.telegram: expected JSON"),
        ("GPUWATCH_RECORD__GPU", "[oops", "GPUWATCH_RECORD__GPU: record.gpu: expected JSON"),
        (
            "GPUWATCH_BUDGET__MAX_USD_HOUR",
            "NaN",
            "GPUWATCH_BUDGET__MAX_USD_HOUR: budget.max_usd_hour: expected a finite",
        ),
        ("GPUWATCH_TIMEZONE__X", "1", "GPUWATCH_TIMEZONE__X: timezone"),
    ],
)
def test_a_fault_in_the_environment_names_the_variable(faults: Any, name: str, value: str, expected: str) -> None:
    found = faults('timezone = "UTC"\n', env={name: value})
    assert any(expected in fault for fault in found), found


def test_a_fault_in_dotenv_says_so(faults: Any) -> None:
    (fault,) = faults("", "GPUWATCH_TIMEZONE=Mars\n")
    assert fault.startswith(".env: GPUWATCH_TIMEZONE: timezone: ")


RENTING = (
    "dry_run = false\n[budget]\nmax_usd_hour = 20\n" + WATCH + 'action = "launch"\n[watch.launch]\nmax_runtime = "1h"\n'
)


@pytest.mark.parametrize("action", ["launch", "ask"])
@pytest.mark.parametrize("without", ["max_usd_hour", "max_runtime"])
def test_renting_for_real_needs_its_limits(faults: Any, loaded: Any, action: str, without: str) -> None:
    toml = RENTING.replace('"launch"', f'"{action}"')
    assert loaded(toml).dry_run is False
    lacking = "\n".join(line for line in toml.splitlines() if without not in line)
    (fault,) = faults(lacking)
    assert f'watch "one": action: action = "{action}" with dry_run = false needs limits; add: {without} = ' in fault


def test_both_missing_limits_are_named_with_their_tables(faults: Any) -> None:
    (fault,) = faults("dry_run = false\n" + WATCH + 'action = "launch"\n')
    assert "max_usd_hour = 20.0 under [budget]" in fault
    assert 'max_runtime = "24h" and max_active = 1 under this watch\'s [watch.launch]' in fault


def test_a_max_active_that_is_written_is_not_asked_for_again(faults: Any) -> None:
    (fault,) = faults(RENTING.replace("max_usd_hour = 20", "").replace('max_runtime = "1h"', "max_active = 2"))
    assert fault.endswith(
        """max_usd_hour = 20.0 under [budget]; max_runtime = "24h" under this watch's [watch.launch]"""
    )


def test_a_lacking_max_active_alone_is_no_fault(loaded: Any) -> None:
    assert "max_active" not in RENTING
    assert loaded(RENTING).watches[0].launch.max_active == 1


def test_a_dry_run_needs_no_limits(loaded: Any) -> None:
    assert loaded(WATCH + 'action = "launch"\n').watches[0].action == "launch"


@pytest.mark.parametrize("line", ['providers = ["nowhere"]', 'notify = ["telegram"]'])
def test_a_watch_names_only_what_is_set_up(faults: Any, line: str) -> None:
    (fault,) = faults(WATCH + line + "\n")
    assert "; use one of: " in fault or "; expected one of: " in fault


SECRET = "s3cr3t-canary"


@pytest.mark.parametrize(
    "toml",
    [
        f'[providers.vastai]\napi_key = "{SECRET} with blank"\n',
        f'[providers.vastai]\napi_key = ["{SECRET}"]\n',
        f'[providers.vastai]\napi_kee = "{SECRET}"\n',
        f'[notify.telegram]\nbot_token = "{SECRET} x"\nchat_id = 1\n',
        f'[notify.email]\npassword = "{SECRET}"\n',
        f'[notify.apprise]\nurls = [["{SECRET}"]]\n',
        f'database_url = "mysql://u:{SECRET}@h/x"\n',
        f'database_url = "{SECRET}',
        f'{WATCH}[watch.launch]\nenv = {{ KEY = ["{SECRET}"] }}\n',
        f'{WATCH}[watch.launch]\nenv = {{ KEY = {{ from_vault = "{SECRET}" }} }}\n',
        f'{WATCH}[watch.launch]\nenv = {{ KEY = {{ from_env = "{SECRET}" }} }}\n',
        f'{WATCH}[watch.launch]\nenv = {{ KEY = {{ from_file = "{SECRET}" }} }}\n',
        f'{WATCH}[watch.launch]\nenv = {{ KEY = {{ from_env = "A", from_file = "{SECRET}" }} }}\n',
        f'{WATCH}[watch.launch]\nenv = "{SECRET}"\n',
        f'{WATCH}[watch.launch]\nregistry = "{SECRET}"\n',
        f'{WATCH}[watch.launch]\nregistry = {{ server = "h", username = "u", password = "{SECRET} x" }}\n',
        f'{WATCH}[watch.launch]\nregistry = {{ server = "h", username = "u", password = ["{SECRET}"] }}\n',
        f'{WATCH}[watch.launch]\nonstart = ["{SECRET}"]\n',
        f'{WATCH}[watch.launch]\nonstart = "{SECRET * 400}"\n',
        f'{WATCH}[watch.launch]\non_ended = ["{SECRET}"]\n',
        f'{WATCH}[watch.launch]\non_ended = {{ url = "ftp://u:{SECRET}@h" }}\n',
        f'{WATCH}[watch.launch]\non_ended = {{ url = "https://h", secret = "{SECRET}\\n" }}\n',
        f'{WATCH}[watch.launch]\non_ended = {{ url = "https://h", sekret = "{SECRET}" }}\n',
        f'{WATCH}[watch.launch]\non_ended = {{ command = "{SECRET}", secret = "{SECRET}" }}\n',
    ],
)
def test_no_fault_quotes_a_secret(loaded: Any, toml: str) -> None:
    with pytest.raises(SettingsError) as caught:
        loaded(toml)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ('notify = ["telegrm"]', "watch \"one\": notify: unknown name 'telegrm'; did you mean telegram?"),
        ("when = \"provider == 'vastia'\"", "watch \"one\": when: unknown name 'vastia'; did you mean vastai?"),
        (
            "any = [\"nvlink\", \"provider in ('vastai', 'runpdo')\"]",
            "any: unknown name 'runpdo'; did you mean runpod?",
        ),
        ('providers = ["vastia"]', "watch \"one\": providers: unknown name 'vastia'; did you mean vastai?"),
        ('notify = ["telegram"]', "use one of: none (or add [notify.telegram])"),
    ],
)
def test_a_misspelt_name_gets_the_nearest_and_a_known_one_its_section(faults: Any, setting: str, expected: str) -> None:
    (fault,) = faults(WATCH + setting)
    assert fault.endswith(expected)


def test_a_key_of_the_top_below_a_table_is_reported_where_it_belongs(faults: Any) -> None:
    (fault,) = faults("[budget]\nmax_usd_hour = 3\ndry_run = false\n")
    assert fault.endswith(":3: budget.dry_run: unknown key; dry_run belongs at the top, above the first [table]")


def test_limits_are_reported_as_plain_numbers(faults: Any) -> None:
    (fault,) = faults(WATCH.replace("3.60", "1e9"))
    assert fault.endswith("max_price: expected a number of at most 1000000")
