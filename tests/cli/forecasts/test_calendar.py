"""`gpuwatch forecasts calendar` on the public series, on planted effects, and on common mistakes."""

from __future__ import annotations

import csv
import gzip
import io
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from cli.conftest import Shell

from gpuwatch.app.forecasts.calendar import DAYS
from gpuwatch.bootstrap import real_now
from tests.checkout import TESTS

PUBLIC = TESTS / "recorded" / "price-history" / "primeintellect-best-2025-10-19_11-03.csv.gz"
COLUMNS = "observed_at,provider,offer_key,region,gpu_name_raw,gpu_count,gpu_mem_gib,spot,price_usd_hour"


def planted(path: Path, days: int, by_day: float, at_night: float) -> Path:
    """An offer that is cheaper from 22:00 to 08:00 UTC."""
    start = datetime(2026, 1, 5, tzinfo=UTC)
    lines = [COLUMNS]
    for hour in range(days * 24):
        at = start + timedelta(hours=hour)
        price = at_night if at.hour >= 22 or at.hour < 8 else by_day
        lines.append(f"{at:%Y-%m-%dT%H:%M:%SZ},runpod,a/ondemand,,H100 SXM,1,80,false,{price}")
    with gzip.open(path, "wt") as file:
        file.write("\n".join(lines) + "\n")
    return path


def test_the_public_series_shows_no_cheaper_nights(shell: Shell) -> None:
    ran = shell("calendar", "H100 SXM", "--data", str(PUBLIC), "--zone", "Europe/Berlin", "--json")
    assert (ran.code, ran.err) == (0, "")
    off_peak, night, weekend = ran.json["effects"]
    assert (night["name"], night["samples"], night["needed"]) == ("night", 11, 10), "of weekdays"
    assert off_peak["verdict"] == "not enough data"
    assert night["verdict"] == "no effect"
    assert -2 < night["low_percent"] <= night["cheaper_percent"] <= night["high_percent"] < 2
    assert "less than the 30–40 % that guides claim" in night["text"]
    assert weekend["verdict"] == "not enough data"  # fifteen days
    assert ran.json["samples"] == 357
    assert (ran.json["since"], ran.json["until"]) == ("2025-10-19T21:00:00Z", "2025-11-04T03:00:00Z")
    assert "rotation" in ran.json["method"]
    assert ran.json["median_price_usd_gpu_hour"] > 1
    assert len(ran.json["cells"]) == 168
    assert ran.json["any_hour"]["text"] == "no hour differs from the rest of its day"


def test_the_public_series_for_a_person(shell: Shell) -> None:
    ran = shell("calendar", "B200", "--data", str(PUBLIC))
    lines = ran.out.splitlines()
    assert [line[:3] for line in lines[4:11]] == ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
    assert all(len(line) == 4 + 24 * 3 for line in lines[3:11])
    assert lines[0].startswith("B200 has no hours that are shown to be cheaper (night and hours of the day: no effect")
    assert "Method" not in ran.out
    assert "Method: " in shell("calendar", "B200", "--data", str(PUBLIC), "-v").out
    assert "night: no effect" in ran.out
    assert "weekend: not enough data: 4 weeks" in ran.out
    assert "no hour differs from the rest of its day" in ran.out
    assert "\x1b" not in ran.out


def test_what_the_guide_says_is_said_where_it_is_true(shell: Shell, tmp_path: Path) -> None:
    data = planted(tmp_path / "planted.csv.gz", 21, 5.50, 3.50)
    ran = shell("calendar", "H100", "--data", str(data))
    assert ran.code == 0
    assert "night: cheaper by 36.4 % (36.4 % to 36.4 %), as guides claim (30–40 %)." in ran.out


def test_a_real_effect_that_is_smaller_than_promised_is_called_so(shell: Shell, tmp_path: Path) -> None:
    data = planted(tmp_path / "planted.csv.gz", 21, 4.20, 3.80)
    ran = shell("calendar", "H100", "--data", str(data))
    assert "night: cheaper by 9.5 % (9.5 % to 9.5 %), less than the 30–40 % that guides claim." in ran.out
    assert "rest of their day: 22:00-08:00 cheaper by 5.7 %, 08:00-22:00 dearer by 4.3 %.\n" in ran.out


def test_csv_has_a_line_for_each_hour_of_the_week(shell: Shell) -> None:
    ran = shell("calendar", "H200", "--data", str(PUBLIC), "--csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert [(row["weekday"], row["hour"]) for row in rows[:25:24]] == [("Mon", "0"), ("Tue", "0")]
    assert len(rows) == 168
    assert {row["median_price_usd_gpu_hour"] for row in rows} == {"2.6675"}  # it never changed


def test_own_parts_of_the_week(shell: Shell) -> None:
    ran = shell(
        "calendar", "H100 SXM", "--data", str(PUBLIC), "--json",
        "--blocks", "siesta=13:00-16:00", "--blocks", "office=Mon-Fri 09:00-18:00",
    )  # fmt: skip
    assert [(one["name"], one["sample"]) for one in ran.json["effects"]] == [("siesta", "days"), ("office", "weeks")]
    assert "guides" not in ran.json["effects"][0]["text"]


def test_too_little_cannot_tell(shell: Shell, tmp_path: Path) -> None:
    data = planted(tmp_path / "few.csv.gz", 5, 5.50, 3.50)
    ran = shell("calendar", "H100", "--data", str(data))
    assert ran.code == 3
    assert "night: not enough data: 10 days with a price in three of four hours are required, " in ran.out


def test_a_gpu_that_a_file_does_not_hold(shell: Shell) -> None:
    for argv in ([], ["--csv"], ["--json"]):
        assert shell("calendar", "RTX 3090", "--data", str(PUBLIC), *argv).code == 3
    assert "no data in" in shell("calendar", "RTX 3090", "--data", str(PUBLIC)).out


def test_an_empty_store_cannot_tell(shell: Shell) -> None:
    assert shell("calendar", "H100").code == 3  # there is no store at all
    shell.new_store()
    ran = shell("calendar", "H100")
    assert (ran.code, ran.err) == (3, "")
    assert ran.out == "H100: no data in the store; it was never polled.\n"


def test_the_store_says_what_the_file_says(shell: Shell) -> None:
    shell.new_store()
    assert shell("import", str(PUBLIC)).code == 0
    stored = shell("calendar", "B200", "--since", "all", "--json").json
    from_file = shell("calendar", "B200", "--data", str(PUBLIC), "--json").json
    assert stored.pop("source") == "the store"
    assert from_file.pop("source") == PUBLIC.name
    assert stored == from_file


def test_a_picture(shell: Shell, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert shell("calendar", "B200", "--data", str(PUBLIC), "--png", str(tmp_path / "b200.png")).code == 0
    assert (tmp_path / "b200.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("argv", "reported"),
    [
        (["H10O"], "did you mean H100?"),
        (["B200", "--zone", "Nowhere"], "expected a time zone"),
        (["B200", "--zone", "../../etc/passwd"], "expected a time zone"),
        (["B200", "--blocks", "night"], "NAME=WINDOW"),
        (["B200", "--blocks", "night=25:00-08:00"], "not a time of day"),
        (["B200", "--blocks", "night=22:30-08:00"], "on the hour"),
        (["B200", "--blocks", "all=Mon-Sun"], "there is no other hour"),
        (["B200", "--blocks", "a=Sat", "--blocks", "a=Sun"], "names must be unique"),
        (["B200", "--csv", "--json"], "use either"),
        ([], "Missing argument 'GPU'"),
    ],
)
def test_mistakes_are_reported_in_a_line(shell: Shell, argv: list[str], reported: str) -> None:
    ran = shell("calendar", *argv, "--data", str(PUBLIC))
    assert (ran.code, ran.out) == (2, "")
    assert reported in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kolkata", "Asia/Kathmandu"])
@pytest.mark.parametrize("until", [None, "2026-02-02T10:20Z"])
def test_no_hour_of_the_future_counts(shell: Shell, tmp_path: Path, zone: str, until: str | None) -> None:
    """A poll counts for three hours, but not for hours that begin later than now, or than --until."""
    now = real_now()
    last = now.replace(microsecond=0) if until is None else datetime(2026, 2, 2, 10, 19, 59, tzinfo=UTC)
    end = now + timedelta(seconds=2) if until is None else datetime.fromisoformat(until)
    rows = [f"{last - timedelta(hours=at):%Y-%m-%dT%H:%M:%SZ},runpod,a,,H100 SXM,1,80,false,2.0" for at in range(30)]
    file = tmp_path / "prices.csv"
    file.write_text("\n".join([COLUMNS, *rows]) + "\n")
    options = ("--since", "20d") if until is None else ("--since", "2026-01-20", "--until", until)
    found = shell("calendar", "H100", "--data", str(file), "--zone", zone, *options, "--json").json
    assert datetime.fromisoformat(found["until"]) <= end
    begun = {datetime.fromisoformat(found["since"]).astimezone(ZoneInfo(zone))}
    while max(begun) + timedelta(hours=1) < end:
        begun.add(max(begun) + timedelta(hours=1))
    known = {(DAYS[at.weekday()], at.hour) for at in begun}
    assert {(one["weekday"], one["hour"]) for one in found["cells"] if one["weeks"]} == known
    assert found["samples"] == len(begun)
    assert all(at.minute == 0 for at in begun), "the hours are those of the zone"
