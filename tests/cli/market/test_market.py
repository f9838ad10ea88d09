"""`gpuwatch market`, from the store and from the public series."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from gpuwatch.bootstrap import real_now
from gpuwatch.cli import Exit
from gpuwatch.cli.market.market import duration_text, heading
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import open_database
from tests.checkout import TESTS
from tests.cli.conftest import Shell
from tests.storage.stored_answers import an_answer, an_offer
from tests.upgraded_store import open_upgraded

SERIES = TESTS / "recorded" / "price-history"
AGGREGATOR = str(SERIES / "primeintellect-best-2025-10-19_11-03.csv.gz")
VAST = str(SERIES / "vastai-offers-2026-02-27_03-03.csv.gz")


@pytest.mark.parametrize("source", ["the store", "a-long-name-of-a-file-2025-10-19_11-03.csv.gz"])
def test_the_heading_fits_a_terminal(source: str) -> None:
    as_of = "2026-03-03 16:40:22 +0530"
    assert len(heading(as_of, source, None).splitlines()) == 1
    assert max(map(len, heading(as_of, source, 80).splitlines())) <= 80


@pytest.fixture
def now() -> datetime:
    return real_now() - timedelta(minutes=10)


def record(shell: Shell, now: datetime, *looks: tuple[float, dict[str, dict[str, float]]]) -> None:
    """Polls of some hours ago: GPU → machine → listed price."""
    shell.settings(f'database_url = "sqlite:///{shell.folder}/gpuwatch.db"\n')
    database = open_upgraded(f"sqlite:///{shell.folder}/gpuwatch.db")
    history = SqlHistoryRecorder(database)
    for hours, market in looks:
        offers = [
            an_offer(machine, usd, gpu=gpu, gpu_family=gpu.split()[0], disk_usd_gb_month=None)
            for gpu, prices in market.items()
            for machine, usd in prices.items()
        ]
        history.record(an_answer(*offers, observed_at=now - timedelta(hours=hours)), lane="sweep")
    database.close()


def test_a_page_of_the_store(shell: Shell, now: datetime) -> None:
    record(
        shell,
        now,
        (30 * 24, {"H100 SXM": {"a": 4.0}, "A40": {"z": 1.0}}),
        (7 * 24, {"H100 SXM": {"a": 2.5}, "A40": {"z": 1.0}}),
        (24, {"H100 SXM": {"a": 2.0}, "A40": {"z": 1.0}}),
        (0, {"H100 SXM": {"a": 3.0, "b": 5.0}}),
    )
    ran = shell("market", "--json")
    assert ran.code == Exit.DONE, ran.err
    rows = {row["gpu"]: row for row in ran.json["gpus"]}
    h100 = rows["H100 SXM"]
    assert (h100["price_usd_gpu_hour"], h100["offers"]) == (3.6, 2)
    assert [h100[f"change_{back}"] for back in ("24h", "7d", "30d")] == pytest.approx([0.5, 0.2, -0.25])
    assert rows["A40"]["price_usd_gpu_hour"] is None
    assert rows["A40"]["change_24h"] is None
    assert {"method", "samples", "since", "until", "looked_at", "source"} <= ran.json.keys()
    line = next(line for line in shell("market").out.splitlines() if line.startswith("A40"))
    assert line.split() == ["A40", *"–––––", "0", "$1.2000/GPU-h", *"–––"]  # polled, and it was gone


def test_some_gpus_alone(shell: Shell, now: datetime) -> None:
    record(shell, now, (0, {"H100 SXM": {"a": 3.0}, "A40": {"z": 1.0}, "L4": {"l": 0.5}}))
    assert [row["gpu"] for row in shell("market", "h100", "--gpu", "A40", "--json").json["gpus"]] == ["A40", "H100 SXM"]
    wrong = shell("market", "--gpu", "H1000")
    assert wrong.code == Exit.USAGE
    assert "did you mean" in wrong.err


def test_an_old_poll_is_reported(shell: Shell, now: datetime) -> None:
    record(shell, now, (5, {"H100 SXM": {"a": 3.0}}))
    ran = shell("market")
    assert "the newest poll is 5.2 h old" in ran.err
    record(shell, now, (1, {"H100 SXM": {"a": 3.0}}))
    assert not shell("market").err


def test_a_gpu_that_is_no_longer_looked_at_says_since_when(shell: Shell, now: datetime) -> None:
    record(shell, now, (9, {"H100 SXM": {"a": 3.0}, "A40": {"z": 1.0}}))
    database = open_database(f"sqlite:///{shell.folder}/gpuwatch.db")
    answer = an_answer(an_offer("a", 3.0), observed_at=now)
    SqlHistoryRecorder(database).record(answer, lane="sweep", gpu="H100 SXM")
    database.close()
    lines = {line.split()[0]: line for line in shell("market").out.splitlines()[2:]}
    assert lines["A40"].endswith("  9.2 h old")
    assert "old" not in lines["H100"]


def test_an_empty_store_cannot_tell(shell: Shell, now: datetime) -> None:
    record(shell, now)
    assert shell("market").code == Exit.CANNOT_TELL
    ran = shell("market", "--json")
    assert (ran.code, ran.json["gpus"], ran.json["looked_at"]) == (Exit.CANNOT_TELL, [], None)


def test_without_a_store_it_says_how_to_get_one(shell: Shell) -> None:
    ran = shell("market")
    assert ran.code == Exit.CANNOT_TELL
    assert "gpuwatch store upgrade" in ran.err


def test_a_store_of_another_schema_is_reported(shell: Shell, now: datetime) -> None:
    record(shell, now, (0, {"H100 SXM": {"a": 3.0}}))
    database = open_database(f"sqlite:///{shell.folder}/gpuwatch.db")
    with database.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0003'")
    database.close()
    ran = shell("market")
    assert ran.code == Exit.CANNOT_TELL
    assert "run `gpuwatch store upgrade`" in ran.err


def test_a_damaged_store_is_reported_in_a_line(shell: Shell, now: datetime) -> None:
    record(shell, now)
    (shell.folder / "gpuwatch.db").write_bytes(b"not a database at all" * 100)
    ran = shell("market")
    assert ran.code == Exit.FAILED
    assert "is not a database" in ran.err
    assert len(ran.err.strip().splitlines()) == 1


def test_the_public_series(shell: Shell) -> None:
    ran = shell("market", "--data", AGGREGATOR, "--json")
    rows = {row["gpu"]: row for row in ran.json["gpus"]}
    assert rows["A100 PCIe 80GB"]["price_usd_gpu_hour"] == 1.2
    assert rows["A100 PCIe 80GB"]["change_7d"] > 0.2
    assert rows["H100 SXM"]["percentile"] < 0.5
    assert rows["H100 SXM"]["life_samples"] >= 5
    assert 0.1 < rows["H100 SXM"]["away_share"] < 0.9
    assert rows["H100 SXM"]["new_offers_per_day"] == pytest.approx(rows["H100 SXM"]["gone_offers_per_day"], rel=0.5)
    assert ran.json["since"] == "2025-10-19T21:00:00Z"


def test_lives_are_about_the_price_that_is_asked(shell: Shell) -> None:
    typical = {row["gpu"]: row for row in shell("market", "--data", VAST, "--json").json["gpus"]}
    asked = {row["gpu"]: row for row in shell("market", "--data", VAST, "--under", "0.3", "--json").json["gpus"]}
    assert {row["under_usd_gpu_hour"] for row in asked.values()} == {0.3}
    assert asked["RTX 4090"]["life_samples"] < typical["RTX 4090"]["life_samples"]
    assert asked["H200 SXM"]["life_samples"] == 0
    assert asked["H200 SXM"]["life_median_seconds"] is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 min"), (3600, "60 min"), (7200, "2.0 h"), (47 * 3600, "47.0 h"), (864_000, "10.0 d")]
)
def test_a_length_of_time_has_one_unit(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def imported_price(shell: Shell, at: datetime, usd: float) -> None:
    """Somebody else's price of an H100, imported."""
    file = shell.folder / "other.csv"
    columns = "observed_at,provider,offer_key,region,gpu_name_raw,gpu_count,gpu_mem_gib,spot,price_usd_hour"
    file.write_text(f"{columns}\n{at:%Y-%m-%dT%H:%M:%SZ},vastai,other,,H100 SXM,1,80,false,{usd}\n")
    ran = shell("import", str(file))
    assert ran.code == Exit.DONE, ran.err


def test_now_is_the_polled_price_and_never_an_import(shell: Shell, now: datetime) -> None:
    record(shell, now, (1, {"H100 SXM": {"a": 3.0}}), (0, {"H100 SXM": {"a": 3.0}}))
    imported_price(shell, now - timedelta(minutes=30), 1.0)
    (row,) = shell("market", "--json").json["gpus"]
    assert (row["price_usd_gpu_hour"], row["offers"], row["imported"]) == (3.6, 1, False)
    assert datetime.fromisoformat(row["looked_at"]) == now.replace(microsecond=0)
    assert "old" not in shell("market").out


def test_an_import_alone_is_shown_with_its_age(shell: Shell, now: datetime) -> None:
    record(shell, now)
    imported_price(shell, now - timedelta(minutes=30), 1.0)
    (row,) = shell("market", "--json").json["gpus"]
    assert (row["price_usd_gpu_hour"], row["imported"]) == (1.2, True)
    assert shell("market").out.splitlines()[-1].endswith("40 min old, imported")
