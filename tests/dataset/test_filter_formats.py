"""`plan dataset filter` on files that are not JSON lines: the copy has their format, and no row is lost in silence."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest

from gpuwatch.dataset.formats.crc32c import masked_crc32c
from gpuwatch.dataset.pipeline import PipelinePlan, compare_all, copy_share, read_share, readings_of
from tests.cli.conftest import Shell
from tests.dataset import tiny_models
from tests.dataset.format_files import RECORDED, read_table, rows_of, write_columns

TEXTS = ["w1 w2 w3", "w1 w2 w3", "w4 w5 w6", "w7 w8", "w7 w8"]


@pytest.fixture
def tiny_shell(shell: Shell) -> Shell:
    """Run gpuwatch beside a tiny model."""
    tiny_models.bert(shell.folder / "tiny")
    return shell


def filtered(shell: Shell, file: str, out: str, *options: str) -> dict[str, object]:
    ran = shell("dataset", "filter", file, out, "--model", "tiny", "--near", "off", "--yes", "--json", *options)
    assert ran.code == 0, ran.err
    return ran.json


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize("sample", ["all", "100"])
def test_a_copy_of_columns_has_the_rows_that_stay(tiny_shell: Shell, ending: str, sample: str) -> None:
    table = pa.table({"id": range(120), "text": [f"w{at // 3} w{at // 3 + 1}" for at in range(120)]})
    write_columns(table, tiny_shell.folder / f"a.{ending}", 50)
    report = filtered(tiny_shell, f"a.{ending}", f"b.{ending}", "--removed", f"c.{ending}", "--sample", sample)
    assert report["removed"]["reasons"]["the same text"]["rows"] == 80
    kept = read_table(tiny_shell.folder / f"b.{ending}")
    assert kept.column("id").to_pylist() == list(range(0, 120, 3))
    assert read_table(tiny_shell.folder / f"c.{ending}").num_rows == 80


def test_pictures_with_one_caption_differ_and_equal_ones_do_not(tiny_shell: Shell) -> None:
    """In the recorded shard each picture differs; the shard twice has each of them twice."""
    shard = (RECORDED / "shard.tar").read_bytes()
    (tiny_shell.folder / "a.tar").write_bytes(shard)
    (tiny_shell.folder / "twice.tar").write_bytes(shard + shard)
    assert filtered(tiny_shell, "a.tar", "b.tar")["removed"]["rows"] == 0
    assert (tiny_shell.folder / "b.tar").read_bytes() == shard[: (tiny_shell.folder / "b.tar").stat().st_size]
    report = filtered(tiny_shell, "twice.tar", "c.tar")
    assert (report["rows"]["rows"], report["removed"]["rows"], "bin" in report["fields"]) == (24, 12, True)
    with tarfile.open(tiny_shell.folder / "c.tar") as archive, tarfile.open(RECORDED / "shard.tar") as recorded:
        assert archive.getnames() == recorded.getnames()


def test_a_damaged_record_is_counted_and_copied_unless_it_is_dropped(tiny_shell: Shell) -> None:
    content = bytearray((RECORDED / "examples.tfrecord").read_bytes())
    content[200] ^= 1
    (tiny_shell.folder / "a.tfrecord").write_bytes(content)
    report = filtered(tiny_shell, "a.tfrecord", "b.tfrecord", "--field", "text")
    assert report["skipped"] == {"wrong checksum": 1}
    assert (report["rows"]["rows"], report["kept"]["rows"], report["written"]["unread_lines"]) == (11, 8, 1)
    assert len(rows_of(tiny_shell.folder / "b.tfrecord")) == 8
    dropped = filtered(tiny_shell, "a.tfrecord", "c.tfrecord", "--field", "text", "--drop-unread")
    assert dropped["written"]["unread_lines"] == 0
    whole = (tiny_shell.folder / "c.tfrecord").read_bytes()
    assert masked_crc32c(whole[:8]) == int.from_bytes(whole[8:12], "little")


@pytest.mark.parametrize(
    ("out", "said"),
    [("b.jsonl", "a copy of a.parquet is Parquet, too"), ("b.parquet.gz", "Parquet is compressed inside")],
)
def test_a_copy_with_the_name_of_another_format_is_refused(tiny_shell: Shell, out: str, said: str) -> None:
    write_columns(pa.table({"text": TEXTS}), tiny_shell.folder / "a.parquet", 9)
    ran = tiny_shell("dataset", "filter", "a.parquet", out, "--model", "tiny")
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_a_cut_off_shard_is_one_line_and_nothing_is_written(tiny_shell: Shell) -> None:
    (tiny_shell.folder / "a.tar").write_bytes((RECORDED / "shard.tar").read_bytes()[:-12_000])
    ran = tiny_shell("dataset", "filter", "a.tar", "b.tar", "--model", "tiny")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "a.tar: cannot be read: " in ran.err
    assert not (tiny_shell.folder / "b.tar").exists()


def test_a_pipeline_compares_files_of_different_formats(tmp_path: Path) -> None:
    source = tmp_path / "parts"
    source.mkdir()
    (source / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    write_columns(pa.table({"text": [*TEXTS, "w9"]}), source / "b.parquet", 2)
    shutil.copy(RECORDED / "shard.tar", source / "c.tar")
    plan = PipelinePlan(
        source=source,
        out=tmp_path / "out",
        readings=readings_of(source, ()),
        wording=False,
        executor="local",
        tasks=1,
        time="1:00:00",
        partition="cpu",
    )
    plan.out.mkdir()
    for step in (read_share, compare_all, copy_share):
        step(None, plan=plan)
    summary = json.loads((plan.out / "summary.json").read_bytes())
    assert (summary["rows"], summary["exact_duplicates"], summary["kept_rows"], summary["skipped"]) == (23, 7, 16, {})
    assert read_table(plan.out / "kept" / "b.parquet").to_pylist() == [{"text": "w9"}]
    assert len(rows_of(plan.out / "kept" / "c.tar")) == 12
