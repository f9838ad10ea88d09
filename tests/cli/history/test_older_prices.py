"""Queries about a period without data, in a store with older prices."""

import shutil
from pathlib import Path

import pytest
from cli.conftest import Shell

from tests.checkout import TESTS

PUBLIC = TESTS / "recorded/price-history/vastai-offers-2026-02-27_03-03.csv.gz"
HINT = "the newest price in the store is from 2026-03-03; try --until 2026-03-04 or --since all\n"


@pytest.fixture
def imported(shell: Shell) -> Shell:
    """A user who has just imported prices that others recorded long ago."""
    assert shell("import", str(PUBLIC)).code == 0
    return shell


@pytest.mark.parametrize(
    "command",
    [
        ("history", "H100"),
        ("market",),
        ("calendar", "H100"),
        ("advise", "H100"),
        ("backtest", "--gpu", "H100", "--max-price", "2"),
    ],
)
def test_it_says_from_when_its_prices_are(imported: Shell, command: tuple[str, ...]) -> None:
    ran = imported(*command)
    assert (ran.code, ran.err) == (3, HINT)
    assert imported(*command, "--json").err == HINT
    assert imported(*command, "--since", "all").err != HINT
    assert imported(*command, "--until", "2026-03-04").err != HINT


def test_a_price_that_stays_the_same_is_as_new_as_the_newest_poll_that_saw_it(shell: Shell, tmp_path: Path) -> None:
    """Four days at one price: the newest change is four days older than the newest observation."""
    rows = [f"2026-03-0{day}T00:00:00Z,market,a,EU,H100,1,80,false,2.0" for day in (1, 2, 3, 4, 5)]
    data = tmp_path / "same.csv"
    columns = "observed_at,provider,offer_key,region,gpu_name_raw,gpu_count,gpu_mem_gib,spot,price_usd_hour"
    data.write_text("\n".join([columns, *rows]) + "\n")
    assert shell("import", str(data)).code == 0
    assert shell("market").err == HINT.replace("03-03", "03-05").replace("03-04", "03-06")


def test_what_was_never_seen_has_no_such_line(imported: Shell) -> None:
    assert imported("history", "MI325X").err == ""
    assert imported("history", "H100", "--provider", "runpod").err == ""


@pytest.mark.parametrize(
    "command",
    [
        ("history", "H100"),
        ("market",),
        ("calendar", "H100"),
        ("advise", "H100"),
        ("backtest", "--gpu", "H100", "--max-price", "2"),
    ],
)
def test_a_file_is_called_by_its_name_alone(shell: Shell, tmp_path: Path, command: tuple[str, ...]) -> None:
    hostile = tmp_path / "red\x1b[31m.csv.gz"
    shutil.copyfile(PUBLIC, hostile)
    ran = shell(*command, "--data", str(hostile))
    assert "red[31m.csv.gz" in ran.out.replace("\ufffd", "")
    assert "\x1b" not in ran.out + ran.err
    assert str(tmp_path) not in ran.out
    assert shell(*command, "--data", str(PUBLIC), "--json").json["source"] == PUBLIC.name
