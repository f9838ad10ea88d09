"""Files are read in columns, with the same result as a reader of single rows."""

from __future__ import annotations

import csv
import gzip
import io
import subprocess
import sys
from collections import Counter
from itertools import repeat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gpuwatch.domain.history.price_rows import COLUMNS, PriceRow, parse_price_row
from gpuwatch.domain.market.offer import unescape_formula
from gpuwatch.errors import UsageError
from gpuwatch.storage.history.imports import price_file_rows as price_files
from gpuwatch.storage.history.imports.price_file_rows import PriceFileReader, cell_batches, read_rows

HEAD = ",".join(COLUMNS)
GOOD = '2026-03-02T12:00:00Z,vastai,1/ondemand,"Utah, US",RTX 4090,8,24,false,3.308444'
CELLS = {
    "observed_at": ["2026-03-02T12:00:00Z", "2026-03-02T13:00:00+01:00", "2026-03-02", "", "x", "1999-01-01T00:00:00Z"],
    "provider": ["vastai", "gcp:listed", "primeintellect:nebius", "", "x" * 18, "'=vast", "vast\x07ai"],
    "offer_key": ["1/ondemand", "2/spot", "", "k" * 65, "'-1", "k" * 64 + "/spot"],
    "region": ["", "Utah, US", "two\nlines", 'say "so"', "\r", "é"],
    "gpu_name_raw": ["RTX 4090", "H100 SXM", "", "card?", "g" * 201],
    "gpu_count": ["1", "8", "", "0", "1025", "two"],
    "gpu_mem_gib": ["24", "79.6", "", "-1", "nan"],
    "spot": ["true", "false", "True", "", "no"],
    "price_usd_hour": [
        "3.308444",
        "2",
        "0",
        "",
        "1e-3",
        "0.0000004",
        "10000",
        "10000.000001",
        "1.2345675",
        "nan",
        "-1",
    ],
}
LINES = st.one_of(
    st.tuples(*(st.sampled_from(CELLS[column]) for column in COLUMNS)),
    st.tuples(*(st.sampled_from(CELLS[column][:2]) for column in COLUMNS)),
)
ODD = st.sampled_from([GOOD, "", "short", ",,,,,,,,", GOOD + ",one,more", '"open', '"a"b,c', "a\0b,,,,,,,,"])


def in_rows(path: Path) -> tuple[list[PriceRow], Counter[str]]:
    """The reader of single rows that the columns replaced: the simplest one."""
    opened = gzip.open if path.read_bytes()[:2] == b"\x1f\x8b" else open
    rows, skipped = [], Counter[str]()
    with opened(path, "rt", encoding="utf-8-sig", newline="") as text:
        for cells in csv.DictReader(text):
            try:
                rows.append(
                    parse_price_row(
                        {name: unescape_formula(cell) if cell else cell for name, cell in cells.items() if name}
                    )
                )
            except ValueError as fault:
                skipped[str(fault)] += 1
    return rows, skipped


def text_of(rows: list[tuple[str, ...] | str], end: str) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator=end)
    writer.writerow(COLUMNS)
    for row in rows:
        if isinstance(row, str):
            file.write(row + end)
        else:
            writer.writerow(row)
    return file.getvalue()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.one_of(LINES, LINES, LINES, ODD), max_size=9),
    end=st.sampled_from(["\n", "\r\n"]),
    zipped=st.booleans(),
    marked=st.booleans(),
)
@example(rows=[], end="\n", zipped=False, marked=True)
def test_columns_hold_what_rows_hold(
    tmp_path: Path, rows: list[tuple[str, ...] | str], end: str, zipped: bool, marked: bool
) -> None:
    path = tmp_path / "rows.csv"
    data = text_of(rows, end).encode("utf-8-sig" if marked else "utf-8")
    path.write_bytes(gzip.compress(data) if zipped else data)
    found = read_rows(path)
    assert (found.rows, Counter(found.skipped)) == in_rows(path)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("odd", ["", "\n", '"a\nb",,,,,,,,\n'], ids=["plain", "blank line", "two lines in a cell"])
def test_skipped_rows_are_named_by_their_lines(tmp_path: Path, odd: str, end: str) -> None:
    path = tmp_path / "rows.csv"
    bad = GOOD.replace("false", "no")
    path.write_text("\n".join([HEAD, GOOD, bad, GOOD, odd + bad, *[bad] * 9, ""]).replace("\n", end), newline="")
    reader = PriceFileReader(path)
    assert sum(len(batch.at_s) for batch in reader.batches()) == 2
    first = 5 + odd.count("\n")
    assert reader.skipped.lines["spot: expected true or false"] == [3, first, first + 1, first + 2, first + 3]
    assert reader.skipped.counts["spot: expected true or false"] == 11


def test_a_broken_file_is_refused_after_any_number_of_good_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress((f"{HEAD}\n" + f"{GOOD}\n" * 120_000).encode())[:-30])
    read: list[int] = []
    with pytest.raises(UsageError, match="cannot read"):  # `read_rows` would keep 60 MB of rows
        read.extend(len(batch.at_s) for batch in PriceFileReader(path).batches())
    assert sum(read) > 100_000


def test_each_distinct_text_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts instead of times: a reader of single rows parses 50,000 times."""
    path = tmp_path / "rows.csv"
    rows = [GOOD.replace("1/ondemand", f"{number % 40}/ondemand") for number in range(50_000)]
    path.write_text("\n".join([HEAD, *rows]))
    calls: Counter[str] = Counter()
    for name in ("parse_price_row", "read_price", "read_moment"):
        real = getattr(price_files, name)
        monkeypatch.setattr(price_files, name, lambda given, name=name, real=real: calls.update([name]) or real(given))
    assert len(read_rows(path).rows) == 50_000
    batches = len(list(cell_batches(path)))
    assert calls == {"parse_price_row": 40, "read_price": batches, "read_moment": batches}


_READS = """
import sys, time
from pathlib import Path
from gpuwatch.storage.history.imports.price_file_rows import PriceFileReader
for batch in PriceFileReader(Path(sys.argv[1])).batches(lambda *_: None, latest_s=2**31, late_reason="later"):
    time.sleep(0.005)  # whoever reads is slower than the disk
lines = Path("/proc/self/status").read_text().splitlines()
print(next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")))
"""


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """pyarrow's own reader reads a whole file ahead: each million rows took 75 MB more."""
    used = []
    for rows in (400_000, 1_600_000):
        path = tmp_path / f"{rows}.csv"
        with path.open("w") as file:  # in blocks: as one text it takes 240 MB of the worker
            file.write(HEAD + "\n")
            file.writelines(repeat((GOOD + "\n") * 10_000, rows // 10_000))
        ran = subprocess.run([sys.executable, "-c", _READS, str(path)], capture_output=True, text=True, check=True)
        used.append(int(ran.stdout))
    assert used[1] - used[0] < 40, f"MB: {used}"
