"""Rows of TFRecord and WebDataset files: as others read and write them, and none lost."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.dataset.formats.crc32c import crc32c, masked_crc32c
from gpuwatch.dataset.formats.row_files import read_lines
from gpuwatch.dataset.formats.tfrecord import example_values
from gpuwatch.errors import UsageError
from tests.dataset.format_files import IN_ANY_FOLDER, RECORDED, copied, rows_of

# --- TFRecord ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_the_checksum_is_that_of_rfc_3720(content: bytes, expected: int) -> None:
    assert crc32c(content) == expected


@given(size=st.integers(0, 5_000), seed=st.integers(0, 255))
def test_the_checksum_by_blocks_is_that_bit_by_bit(size: int, seed: int) -> None:
    content = bytes((seed + 7 * index * index) & 255 for index in range(size))
    slow = 0xFFFFFFFF
    for byte in content:
        slow ^= byte
        for _ in range(8):
            slow = slow >> 1 ^ (0x82F63B78 if slow & 1 else 0)
    assert crc32c(content) == slow ^ 0xFFFFFFFF


def test_examples_of_another_library_are_what_it_reads_itself() -> None:
    expected = json.loads((RECORDED / "examples-read-by-tfrecord.json").read_text(encoding="utf-8"))
    found = rows_of(RECORDED / "examples.tfrecord")
    assert len(found) == 12
    for row, other in zip(found, expected, strict=True):
        assert (row["text"], row["label"]) == (other["text"], other["label"])
        assert row["scores"] == pytest.approx(other["scores"])
        assert row["image"] == {"bytes": 700, "data": f"data:;blake2b,{other['image']}"}


def test_sequences_keep_their_steps() -> None:
    found = rows_of(RECORDED / "sequences.tfrecord")
    assert found[2]["length"] == 3
    assert found[2]["tokens"] == [[2, 2], [3], [4, 5]]
    assert found[2]["words"] == [["a"], ["bc"], ["2"]]


def _example_class() -> Any:
    """`tf.train.Example` for the library of protocol buffers, which encodes it."""
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="t", syntax="proto3")
    kinds = {"bytes_list": ("BytesList", 12), "float_list": ("FloatList", 2), "int64_list": ("Int64List", 3)}
    for name, kind in kinds.values():
        file.message_type.add(name=name).field.add(name="value", number=1, label=3, type=kind)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (field, (name, _)) in enumerate(kinds.items(), 1):
        feature.field.add(name=field, number=number, label=1, type=11, type_name=f".t.{name}", oneof_index=0)
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=1, type=9)
    entry.field.add(name="value", number=2, label=1, type=11, type_name=".t.Feature")
    features.field.add(name="feature", number=1, label=3, type=11, type_name=".t.Features.FeatureEntry")
    example = file.message_type.add(name="Example")
    example.field.add(name="features", number=1, label=1, type=11, type_name=".t.Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))


EXAMPLE = _example_class()
FEATURE = st.one_of(
    st.tuples(st.just("bytes_list"), st.lists(st.binary(max_size=40), max_size=4)),
    st.tuples(st.just("float_list"), st.lists(st.floats(width=32, allow_nan=False), max_size=4)),
    st.tuples(st.just("int64_list"), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4)),
)


@given(features=st.dictionaries(st.text(max_size=12), FEATURE, max_size=5))
def test_an_example_has_the_values_that_another_library_encoded(features: dict[str, tuple[str, list[Any]]]) -> None:
    example = EXAMPLE()
    for name, (kind, values) in features.items():
        getattr(example.features.feature[name], kind).value.extend(values)
    expected = {name: values[0] if len(values) == 1 else values for name, (_, values) in features.items()}
    assert example_values(example.SerializeToString()) == expected


@given(record=st.binary(max_size=200))
def test_any_bytes_are_an_example_or_are_named(record: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("any") / "a.tfrecord"
    path.write_bytes(framed(record))
    [line] = read_lines(path)
    assert line.content == "not a tf.train.Example" or json.loads(line.content) is not None


def framed(record: bytes) -> bytes:
    length = len(record).to_bytes(8, "little")
    tail = masked_crc32c(record).to_bytes(4, "little")
    return length + masked_crc32c(length).to_bytes(4, "little") + record + tail


def test_a_record_with_a_wrong_checksum_is_counted_and_the_next_one_is_read(tmp_path: Path) -> None:
    content = bytearray((RECORDED / "examples.tfrecord").read_bytes())
    content[200] ^= 1
    path = tmp_path / "a.tfrecord"
    path.write_bytes(content)
    lines = list(read_lines(path))
    assert lines[0].content == "wrong checksum"
    assert len(rows_of(path)) == len(lines) - 1 == 11


def test_a_huge_length_with_a_right_checksum_takes_no_memory(tmp_path: Path) -> None:
    length = (1 << 62).to_bytes(8, "little")
    head = length + masked_crc32c(length).to_bytes(4, "little")
    for name, content in (("a.tfrecord", head), ("a.tfrecord.gz", gzip.compress(head + bytes(100)))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UsageError, match=r"cannot be read: record 1 at byte 0 is cut off"):
            list(read_lines(tmp_path / name))


# --- WebDataset -------------------------------------------------------------------------------------------------------


def test_a_shard_of_another_library_is_what_it_reads_itself() -> None:
    expected = json.loads((RECORDED / "shard-read-by-webdataset.json").read_text(encoding="utf-8"))
    found = rows_of(RECORDED / "shard.tar")
    assert len(found) == 12
    for row, other in zip(found, expected, strict=True):
        inner = json.loads(other["json"])
        assert row == {
            "caption": inner["caption"],
            "width": inner["width"],
            "txt": other["txt"],
            "seg.cls": other["seg.cls"],
            "bin": {"bytes": 600, "data": f"data:;blake2b,{other['bin']}"},
        }


KEY = st.text("ab/é", min_size=1, max_size=150).map(lambda text: "k" + "/".join(filter(None, text.split("/"))))
FILES = st.dictionaries(st.sampled_from(["txt", "json", "jpg", "a.b"]), st.binary(max_size=1_200), min_size=1)


@IN_ANY_FOLDER
@given(
    samples=st.lists(st.tuples(KEY, FILES), max_size=6, unique_by=lambda sample: sample[0]),
    form=st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    packed=st.booleans(),
    keep=st.integers(0, 63),
)
def test_every_sample_of_an_archive_is_a_row_or_is_named(
    samples: list[tuple[str, dict[str, bytes]]], form: int, packed: bool, keep: int, tmp_path: Path
) -> None:
    packer = io.BytesIO()
    with tarfile.open(fileobj=packer, mode="w", format=form) as archive:
        for key, files in samples:
            for kind, content in files.items():
                info = tarfile.TarInfo(f"{key}.{kind}")
                info.size = len(content)
                try:
                    archive.addfile(info, io.BytesIO(content))
                except ValueError:  # a name too long for ustar
                    return
    path = tmp_path / ("a.tar.gz" if packed else "a.tar")
    path.write_bytes(gzip.compress(packer.getvalue()) if packed else packer.getvalue())
    if not samples:
        return
    lines = list(read_lines(path))
    assert len(lines) == len(samples)
    for line, (_, files) in zip(lines, samples, strict=True):
        if isinstance(line.content, str):
            assert (line.content, "json" in files) == ("not JSON", True)
        elif "json" not in files:
            assert json.loads(line.content).keys() == files.keys()
    for place, line in enumerate(lines):
        assert list(read_lines(path, line.number + 1, line.after)) == lines[place + 1 :]
    kept = copied(path, tmp_path / "out.tar", lambda line: bool(keep >> line.number & 1))
    if kept:
        assert [line.content for line in read_lines(tmp_path / "out.tar")] == kept
        with tarfile.open(tmp_path / "out.tar") as archive:
            names = [f"{key}.{kind}" for at, (key, files) in enumerate(samples) if keep >> at & 1 for kind in files]
            assert archive.getnames() == names


def test_members_that_are_no_files_of_a_row_are_counted(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, kind in [("d", tarfile.DIRTYPE), ("a.txt", tarfile.REGTYPE), ("b.txt", tarfile.SYMTYPE)]:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "a.txt"
            archive.addfile(info)
        archive.addfile(tarfile.TarInfo("README"))
        archive.addfile(tarfile.TarInfo("c.txt"))
        archive.addfile(tarfile.TarInfo("c.txt"))
    lines = [line.content for line in read_lines(tmp_path / "a.tar")]
    assert lines == ["a folder", b'{"txt":""}', "a link", "a file without an ending", "two files with one name"]


@pytest.mark.parametrize("name", ["/etc/passwd.txt", "../a.txt", "a/../../b.txt", "..\\a.txt"])
@pytest.mark.parametrize("is_link", [False, True])
def test_a_path_out_of_the_archive_is_refused(tmp_path: Path, name: str, is_link: bool) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        info = tarfile.TarInfo("a.txt" if is_link else name)
        if is_link:
            info.type, info.linkname = tarfile.SYMTYPE, name
        archive.addfile(info)
    with pytest.raises(UsageError, match=r"its path leads out of the archive's folder"):
        list(read_lines(tmp_path / "a.tar"))


def test_archives_one_after_the_other_are_read_to_the_end(tmp_path: Path) -> None:
    shard = (RECORDED / "shard.tar").read_bytes()
    (tmp_path / "a.tar").write_bytes(shard + shard)
    assert len(rows_of(tmp_path / "a.tar")) == 24
