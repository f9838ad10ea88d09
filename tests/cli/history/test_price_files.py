"""`gpuwatch store import` and `gpuwatch store export`, from the user's view."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from typing import Any

import pytest

from gpuwatch.domain.history.price_rows import COLUMNS
from gpuwatch.emulator import Marketplace
from gpuwatch.installation import install_hint
from tests.checkout import TESTS
from tests.cli.conftest import Shell

PUBLIC = TESTS / "recorded" / "price-history"
VASTAI = str(next(PUBLIC.glob("vastai-*")))
HEAD = ",".join(COLUMNS)
ROW = "2026-02-27T13:00:00Z,vastai,1/ondemand,US,RTX 4090,1,24,false,0.35"


@pytest.fixture
def stored(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("GPUWATCH_DATABASE_URL", f"sqlite:///{shell.folder}/gpuwatch.db")
    return shell


def a_file(shell: Shell, *lines: str, name: str = "rows.csv") -> str:
    path = shell.folder / name
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_a_public_series_goes_in_and_is_asked_for(stored: Shell) -> None:
    ran = stored("import", VASTAI)
    assert (ran.code, ran.err) == (0, "")
    assert "4,716 rows: 4,716 new, 0 known" in ran.out
    assert "2026-02-27 13:36:32 UTC to 2026-03-03 16:40:22 UTC" in ran.out
    again = stored("import", VASTAI)
    assert "4,716 rows: 0 new, 4,716 known" in again.out


def test_import_tells_in_json_what_became_of_each_row(stored: Shell) -> None:
    path = a_file(stored, HEAD, ROW, ROW.replace("0.35", "0.30"), ROW.replace("0.35", "much"), ROW.replace("1/", "2/"))
    (file,) = stored("import", path, "--json").json["files"]
    assert (file["rows"], file["new"], file["known"], file["twice"]) == (4, 2, 0, 1)
    assert list(file["skipped"].values()) == [1]
    assert (file["since"], file["until"], file["looks"]) == ("2026-02-27T13:00:00Z", "2026-02-27T13:00:00Z", 1)
    assert file["sources"] == [{"provider": "vastai", "kind": "live", "rows": 3}]


def test_what_is_left_out_is_reported_with_its_reason(stored: Shell) -> None:
    ran = stored("import", a_file(stored, HEAD, ROW, ROW.replace("false", "perhaps"), ROW.replace("2026", "2099")))
    assert ran.code == 0
    assert "skipped: 1: spot: expected true or false" in ran.out
    assert "skipped: 1: observed_at: later than now" in ran.out


@pytest.mark.parametrize(("good", "bad"), [("false", "perhaps"), ("00Z", "00"), ("2026", "2099"), ("0.35", "free")])
def test_a_file_without_one_good_row_fails(stored: Shell, good: str, bad: str) -> None:
    ran = stored("import", a_file(stored, HEAD, ROW.replace(good, bad)))
    assert ran.code == 1
    assert "1 skipped" in ran.out
    assert ran.err == ""


def test_a_provider_without_one_good_row_does_not_hinder_the_others(stored: Shell) -> None:
    late = ROW.replace("2026", "2099").replace("vastai", "runpod")
    (file,) = stored("import", a_file(stored, HEAD, ROW, late), "--json").json["files"]
    assert (file["new"], list(file["skipped"].values())) == (1, [1])
    assert file["sources"] == [{"provider": "vastai", "kind": "live", "rows": 1}]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "columns"),
        (b"a,b\n1,2\n", "missing columns: observed_at"),
        (HEAD.encode() + b"\n\xff\xfe\n", "cannot read"),
        (b"\x1f\x8b\x08rubbish", "cannot read"),
        (gzip.compress(HEAD.encode() + b"\n" + ROW.encode() * 999, mtime=0)[:-9], "cannot read"),
        (b"PAR1rubbishPAR1", "cannot read"),
        (b"x" * 300_000, "is not a file of price rows"),
        (HEAD.encode() + b'\n"' + b"x\n" * 200_000, "cannot read"),
    ],
)
def test_a_file_that_is_none_is_one_line_and_code_2(stored: Shell, content: bytes, words: str) -> None:
    path = stored.folder / "odd.csv"
    path.write_bytes(content)
    ran = stored("import", str(path))
    assert ran.code == 2
    assert words in ran.err
    assert len(ran.err.splitlines()) == 1
    assert "Traceback" not in ran.err


def test_import_refuses_what_is_not_there(stored: Shell) -> None:
    assert stored("import", "nowhere.csv").code == 2
    assert stored("import").code == 2
    assert stored("import", ".").code == 2
    assert stored("import", VASTAI, "--kind", "odd").code == 2


def test_a_dry_run_writes_nothing(stored: Shell) -> None:
    ran = stored("import", VASTAI, "--dry-run")
    assert ran.code == 3  # there is no store yet
    stored.new_store()
    ran = stored("import", VASTAI, "--dry-run")
    assert "4,716 would be new" in ran.out
    assert stored("import", VASTAI, "--dry-run", "--json").json["files"][0]["new"] == 4716


def test_an_unknown_provider_and_looks_of_our_own_are_reported(stored: Shell, market: Marketplace) -> None:
    path = a_file(stored, HEAD, ROW.replace("vastai", "vast.ai"))
    ran = stored("import", path)
    assert "unknown provider 'vast.ai'" in ran.err
    assert ran.code == 0


def test_export_writes_what_import_reads_back(stored: Shell) -> None:
    stored("import", VASTAI)
    ran = stored("export", "out.csv.gz", "--imported-too", "--json")
    assert (ran.code, ran.json["rows"]) == (0, 4716)
    with gzip.open(stored.folder / "out.csv.gz", "rt") as file:
        assert next(csv.reader(file)) == list(COLUMNS)
    assert "0 new, 4,716 known" in stored("import", "out.csv.gz").out


def test_export_by_default_holds_what_the_store_saw_itself(stored: Shell, market: Marketplace) -> None:
    stored("import", VASTAI)
    ran = stored("export", "own.csv")
    assert ran.code == 3
    assert "--imported-too" in ran.err
    assert not (stored.folder / "own.csv").exists()
    market.publish(gpu="H100 SXM", count=1, usd_hour=2.0)
    stored("check", "--gpu", "H100", "--max-price", "3")
    assert stored("export", "own.csv").code == 0
    rows = list(csv.DictReader((stored.folder / "own.csv").open()))
    assert [row["gpu_name_raw"] for row in rows if row["offer_key"]] == ["H100 SXM"]


def test_export_narrows_and_prints(stored: Shell) -> None:
    ran = stored(
        "export", "-", "--data", VASTAI, "--gpu", "H200", "--spot", "only", "--count", "8", "--until", "2026-03-01"
    )
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert rows
    assert {(row["gpu_name_raw"], row["gpu_count"], row["spot"]) for row in rows} == {("H200", "8", "true")}
    assert max(row["observed_at"] for row in rows) < "2026-03-01"


def test_a_file_of_looks_alone_is_an_import_too(stored: Shell) -> None:
    path = a_file(stored, HEAD, "2026-02-27T13:00:00Z,vastai,,,,,,false,")
    (file,) = stored("import", path, "--json").json["files"]
    assert (file["rows"], file["looks"], file["since"]) == (0, 1, "2026-02-27T13:00:00Z")
    ran = stored("export", "-", "--data", path, "--gpu", "L40S")
    assert ran.out.splitlines()[1] == "2026-02-27T13:00:00Z,vastai,,,L40S,,,false,"


def test_export_converts_a_file(stored: Shell) -> None:
    assert stored("export", "v.parquet", "--data", VASTAI).code == 0
    assert stored("export", "v.csv", "--data", "v.parquet").code == 0
    with gzip.open(VASTAI, "rt") as before, (stored.folder / "v.csv").open() as after:
        assert list(csv.DictReader(after)) == list(csv.DictReader(before))


@pytest.mark.parametrize(
    "argv",
    [
        ("export",),
        ("export", "x.txt"),
        ("export", "no/x.csv"),
        ("export", "x.csv", "--gpu", "nonsense"),
        ("export", "x.csv", "--count", "0"),
        ("export", "x.csv", "--since", "whenever"),
        ("export", "-", "--json"),
        ("export", "x.csv", "--data", "nowhere.csv"),
    ],
)
def test_export_refuses_nonsense_with_code_2(stored: Shell, argv: tuple[str, ...]) -> None:
    stored.new_store()
    ran = stored(*argv)
    assert ran.code == 2, ran
    assert not (stored.folder / "x.csv").exists()


def test_export_replaces_nothing_without_force(stored: Shell) -> None:
    stored("import", VASTAI)
    a_file(stored, "precious", name="out.csv")
    assert stored("export", "out.csv", "--imported-too").code == 2
    assert stored("export", "out.csv", "--imported-too", "--force").code == 0


def test_an_empty_store_has_nothing_to_export(stored: Shell) -> None:
    assert stored("export", "x.csv").code == 3  # no store
    stored.new_store()
    ran = stored("export", "x.csv")
    assert (ran.code, ran.out) == (3, "")
    assert "has no such prices" in ran.err


def test_without_pyarrow_the_extra_is_named(stored: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    stored("export", "v.parquet", "--data", VASTAI)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for argv in (("import", "v.parquet"), ("export", "w.parquet", "--data", VASTAI)):
        ran = stored(*argv)
        assert ran.code == 2
        assert install_hint("analysis") in ran.err
    assert not (stored.folder / "w.parquet").exists()


def test_parquet_of_others_is_read_whatever_its_types(stored: Shell) -> None:
    """As pandas, polars and DuckDB write them: times without zone or in nanoseconds, text for numbers, dictionaries."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    lines = {name: [value, value] for name, value in zip(COLUMNS, ROW.split(","), strict=True)}
    columns: dict[str, Any] = {name: pyarrow.array(values) for name, values in lines.items()}
    columns["observed_at"] = pyarrow.array([1772197200 * 10**9, 1772197260 * 10**9 + 1], pyarrow.timestamp("ns"))
    columns["provider"] = columns["provider"].dictionary_encode()
    columns["gpu_count"] = pyarrow.array([1.0, 1.0])
    columns["gpu_mem_gib"] = pyarrow.array([24.0, float("nan")])
    columns["spot"] = pyarrow.array([False, True])
    columns["price_usd_hour"] = pyarrow.array(["0.35", "0.40"]).cast(pyarrow.decimal128(9, 6))
    parquet.write_table(pyarrow.table(columns), stored.folder / "x.parquet")
    (file,) = stored("import", "x.parquet", "--json").json["files"]
    assert (file["new"], file["skipped"], file["until"]) == (2, {}, "2026-02-27T13:01:00Z")


def test_json_stands_alone_on_standard_output(stored: Shell) -> None:
    ran = stored("import", VASTAI, a_file(stored, HEAD, ROW.replace("vastai", "odd")), "--json")
    assert len(json.loads(ran.out)["files"]) == 2
    assert "odd" in ran.err


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal_gives_the_cursor_back(stored: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    assert stored("import", VASTAI).code == 0
    assert "importing" in screen.getvalue()
    assert screen.getvalue().rindex("\x1b[?25h") > screen.getvalue().rindex("\x1b[?25l")


def test_no_bar_where_there_is_no_terminal(stored: Shell) -> None:
    assert stored("import", VASTAI).err == ""
