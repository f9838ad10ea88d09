"""Rules over several keys of a launch: keys that require each other are errors, conflicting limits are warnings."""

from __future__ import annotations

import logging
from typing import Any

import pytest

WATCH = (
    '[[watch]]\nname = "one"\ngpu = "H100"\nmax_price = 2\naction = "launch"\nverified = true\nmin_reliability = 0.95\n'
)

ENDS = 'self_destruct = true\nmax_runtime = "1h"'
CLASHES = [
    ("bid = { max = 1.2 }", 'bid: requires spot = "only", "any" or "first" here'),
    ("relaunch = true", 'relaunch: requires spot = "only", "any" or "first" here'),
    ("stop_outside = true", "stop_outside: requires `active` in this watch"),
    ("self_destruct = true", "self_destruct: requires max_runtime"),
    ('self_destruct = "yes"', 'self_destruct: expected true, false or "auto"'),
    ('self_destruct = true\nmax_runtime = "1h"\nruntype = "args"', "self_destruct: not possible with runtype"),
    ('self_destruct = true\nmax_runtime = "1h"\ntemplate = "t"', "self_destruct: requires onstart"),
    (f'onstart = "{"x" * 2501}"\n{ENDS}', "onstart: expected a script of at most 2500 characters with self_destruct"),
    (f'onstart = "#!/usr/bin/env python3"\n{ENDS}', "onstart: expected a shell script with self_destruct"),
    ('verify = "ssh"\nruntype = "args"', "verify: not possible with runtype"),
    ('wasteful_for = "5m"', "wasteful_for: expected only with wasteful_below"),
]


def test_an_owner_is_not_called_like_another_mark_in_the_database(faults: Any) -> None:
    """A watch `job::one` would be a job; a pause of everything, `watch::` or `breaker::`, would pause nothing."""
    for name in ("job", "Job", "watch", "breaker"):
        (fault,) = faults(f'owner = "{name}"\n{WATCH}')
        assert "owner: expected another name" in fault
    for name, expected in (("a b", 'only letters, digits, "-" and "_"'), ("a" * 17, "at most 16 characters")):
        (fault,) = faults(f'owner = "{name}"\n{WATCH}')
        assert fault.endswith(f"owner: expected {expected}")


def test_a_name_that_an_older_gpuwatch_allowed_and_now_marks_an_owner_says_how_to_go_on(faults: Any) -> None:
    (fault,) = faults(WATCH.replace('"one"', '"lab::the one"'))
    assert fault.endswith(
        "name: expected a name without \"lab::\", which marks what another owner stored; name it 'the one',"
        " and if an older gpuwatch used the name, run: gpuwatch watches take-over 'the one' --from lab"
    )
    (fault,) = faults('owner = "lab"\n' + WATCH.replace('"one"', '"lab::one"'))
    assert fault.endswith("which marks what another owner stored")


@pytest.mark.parametrize(("keys", "expected"), CLASHES)
def test_a_key_without_what_it_needs_is_a_fault_that_names_it(faults: Any, keys: str, expected: str) -> None:
    (fault,) = faults(f"{WATCH}[watch.launch]\n{keys}\n")
    assert f'gpuwatch.toml:9: watch "one": launch.{expected}' in fault


@pytest.mark.parametrize(
    ("beside", "keys"),
    [
        ('spot = "only"\n', "bid = { max = 1.2 }\nrelaunch = true"),
        ('spot = "any"\n', "bid = { max = 1.2 }"),
        ('spot = "only"\n', "relaunch = true"),
        ('spot = "only"\n', ""),
        ('active = "08:00-09:00"\n', "stop_outside = true"),
        ("", 'self_destruct = true\nmax_runtime = "1h"'),
        ("", 'self_destruct = "auto"\ntemplate = "t"'),
        ("", f'onstart = "{"x" * 2500}"\n{ENDS}'),
        ("", f'onstart = "#!/bin/bash -e"\ntemplate = "t"\n{ENDS}'),
        ("", 'runtype = "args"'),
        ("", 'wasteful_below = 10\nwasteful_for = "5m"'),
    ],
)
def test_with_it_all_is_well(loaded: Any, caplog: pytest.LogCaptureFixture, beside: str, keys: str) -> None:
    with caplog.at_level(logging.WARNING, "gpuwatch.settings"):
        assert loaded(f"{WATCH}{beside}[watch.launch]\n{keys}\n").watches[0].launch is not None
    assert caplog.records == []


@pytest.mark.parametrize(("runtype", "is_used"), [("ssh", False), ("args", True)])
def test_an_image_that_a_provider_runs_with_one_runtype_is_reported_with_the_others(
    loaded: Any, caplog: pytest.LogCaptureFixture, runtype: str, is_used: bool
) -> None:
    at = WATCH.replace("[[watch]]", '[providers.shadeform]\n[[watch]]\nproviders = ["shadeform"]')
    with caplog.at_level(logging.WARNING, "gpuwatch.settings"):
        loaded(f'{at}[watch.launch]\nruntype = "{runtype}"\n')
    assert ("launch.image is ignored there" in caplog.text) is not is_used


@pytest.fixture
def warned(loaded: Any, caplog: pytest.LogCaptureFixture) -> Any:
    """Return the warnings about one launch: `of(budget, beside, launch, watch_budget)`."""

    def run(budget: str = "", beside: str = "", launch: str = "", watch_budget: str = "") -> list[str]:
        caplog.clear()
        toml = f"[budget]\n{budget}\n{WATCH}{beside}\n[watch.launch]\n{launch}\n[watch.budget]\n{watch_budget}\n"
        with caplog.at_level(logging.WARNING, "gpuwatch.settings"):
            loaded(toml)
        return [record.getMessage().removeprefix('watch "one": ') for record in caplog.records]

    return run


@pytest.mark.parametrize(
    ("budget", "launch", "sum_"),
    [
        ("max_usd_day = 23.99", 'max_runtime = "12h"', "1 GPU × 2 USD × 12.03 h = 24.07 USD"),
        ("max_usd_day = 47", 'max_runtime = "10d"', "1 GPU × 2 USD × 24 h = 48.00 USD"),
        ("max_usd_day = 47", "", "1 GPU × 2 USD × 24 h = 48.00 USD"),
        ("max_usd_hour = 1.99", 'max_runtime = "5m"', "1 GPU × 2 USD × 1 h = 2.00 USD"),
        ("max_usd_month = 100", 'max_runtime = "51h"', "1 GPU × 2 USD × 51.03 h = 102.07 USD"),
    ],
)
def test_a_launch_that_breaks_a_budget_by_itself_is_reported(warned: Any, budget: str, launch: str, sum_: str) -> None:
    """A day and a month reserve two minutes more, until its end is proven."""
    key, _, limit = budget.partition(" = ")
    text = f"{key} = {limit} blocks every launch at max_price: {sum_}"
    assert warned(budget, "", launch) == [f"[budget] {text}"]
    assert warned("", "", launch, budget) == [f"[watch.budget] {text}"]


def test_a_watch_that_rents_nothing_breaks_no_budget(loaded: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "gpuwatch.settings"):
        loaded("[budget]\nmax_usd_day = 1\n" + WATCH.replace('"launch"', '"alert"') + "[watch.launch]\n")
    assert caplog.records == []


@pytest.mark.parametrize("budget", ["max_usd_day = 24.07", "max_usd_hour = 2", "max_usd_month = 24.07", ""])
def test_one_that_fits_to_the_cent_is_not(warned: Any, budget: str) -> None:
    assert warned(budget, "", 'max_runtime = "12h"') == []


def test_the_fewest_gpus_count_and_a_spot_watch_counts_its_bid(warned: Any) -> None:
    assert "4 GPU × 2 USD × 1 h = 8.00 USD" in warned("max_usd_hour = 7", "gpu_count = { min = 4 }")[0]
    bid = warned("max_usd_hour = 1", 'spot = "only"', "bid = { max = 1.5 }")
    assert bid == ["[budget] max_usd_hour = 1 blocks every launch at bid.max: 1 GPU × 1.5 USD × 1 h = 1.50 USD"]


def test_a_threshold_to_tell_under_the_one_to_stop_is_reported(warned: Any) -> None:
    idle = 'idle_below = 10\nidle_for = "5m"\n'
    (said,) = warned("", "", idle + "wasteful_below = 9.5")
    assert said.startswith("launch.wasteful_below = 9.5 is below idle_below = 10: ")
    assert warned("", "", idle + "wasteful_below = 10") == []


def test_a_bid_above_the_threshold_is_reported(warned: Any) -> None:
    (said,) = warned("", 'spot = "any"', "bid = { max = 2.5 }")
    assert said.startswith("launch.bid.max = 2.5 is above max_price = 2: ")
    assert warned("", 'spot = "any"', "bid = { max = 2 }") == []


@pytest.mark.parametrize(
    ("url", "reported"),
    [("http://hooks.example.org/x", True), ("https://hooks.example.org/x", False), ("http://127.0.0.1:9/x", False)],
)
def test_a_webhook_over_plain_http_is_reported_unless_it_stays_here(warned: Any, url: str, reported: bool) -> None:
    said = warned("", "", f'on_ended = {{ url = "{url}" }}')
    text = "launch.on_ended.url: data is sent unencrypted; use https://"
    assert said == ([text] if reported else [])


@pytest.mark.parametrize(
    ("keys", "missing"),
    [
        ("", "verified = true and min_reliability = 0.95"),
        ("verified = true", "min_reliability = 0.95"),
        ("min_reliability = 0.5", "verified = true"),
        ('providers = ["vastai", "runpod"]', "verified = true and min_reliability = 0.95"),
    ],
)
def test_a_watch_that_rents_from_any_host_is_reported(
    loaded: Any, caplog: pytest.LogCaptureFixture, keys: str, missing: str
) -> None:
    bare = '[providers.runpod]\n[[watch]]\nname = "one"\ngpu = "H100"\nmax_price = 2\naction = "launch"\n'
    with caplog.at_level(logging.WARNING, "gpuwatch.settings"):
        loaded(f"{bare}{keys}\n[watch.launch]\n")
    assert [record.getMessage() for record in caplog.records] == [
        f'watch "one": it may rent from any host at vastai; add {missing}'
    ]


@pytest.mark.parametrize("keys", ['action = "alert"', 'action = "launch"\nproviders = ["runpod"]'])
def test_a_watch_that_does_not_rent_from_any_host_is_not(
    loaded: Any, caplog: pytest.LogCaptureFixture, keys: str
) -> None:
    bare = '[providers.runpod]\n[[watch]]\nname = "one"\ngpu = "H100"\nmax_price = 2\n'
    with caplog.at_level(logging.WARNING, "gpuwatch.settings"):
        loaded(f"{bare}{keys}\n[watch.launch]\n")
    assert caplog.records == []


@pytest.mark.parametrize(
    ("first", "second", "fault"),
    [
        ("two", "", "a watch named 'two' still exists"),
        ("one", "", "a watch named 'one' still exists"),
        ("old", "old", "another watch also has renamed_from = 'old'"),
    ],
)
def test_a_name_that_was_given_up_belongs_to_one_watch(faults: Any, first: str, second: str, fault: str) -> None:
    toml = "".join(
        f'[[watch]]\nname = "{name}"\nrenamed_from = "{old}"\ngpu = "H100"\nmax_price = 2\n'
        for name, old in (("one", first), ("two", second))
    )
    assert fault in faults(toml)[0]


def test_a_cheaper_place_is_reported_for_what_a_watch_rents(faults: Any, loaded: Any) -> None:
    plain = f'{WATCH}relocate = {{ min_saving = "20%", after = "3h" }}\n'
    (watch,) = loaded(plain).watches
    assert (watch.relocate.min_saving, watch.relocate.after_s) == (0.2, 10800.0)
    (watch,) = loaded(f"{WATCH}relocate = {{}}\n").watches
    assert (watch.relocate.min_saving, watch.relocate.after_s) == (0.15, 7200.0)
    (fault,) = faults(plain.replace('action = "launch"', 'action = "alert"'))
    assert 'watch "one": relocate: expected only with action = "launch" or "ask"' in fault
    (fault,) = faults(f"{WATCH}relocate = {{ min_saving = 15 }}\n")
    assert "relocate.min_saving" in fault
