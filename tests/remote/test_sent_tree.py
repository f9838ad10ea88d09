"""What is sent of a folder with links: their content, or a fault that names the link."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from gpuwatch.emulator.instances.machine_sshd import MachineSshd
from gpuwatch.ports.remote import CannotSend
from gpuwatch.remote.sent_tree import sent_entries
from gpuwatch.remote.ssh import OpenSshShell


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer to log in than `CONNECT_S` allows; that limit is not what these tests judge."""
    monkeypatch.setattr("gpuwatch.remote.ssh.CONNECT_S", 60)


def _snapshot(folder: Path) -> Path:
    """A model in a hub's cache: its files are links to blobs beside the snapshot."""
    blobs, snapshot = folder / "models/blobs", folder / "models/snapshots/abc"
    blobs.mkdir(parents=True)
    (snapshot / "sub").mkdir(parents=True)
    (blobs / "1a").write_text("weights")
    (blobs / "2b").write_text("config")
    (snapshot / "model.bin").symlink_to("../../blobs/1a")
    (snapshot / "sub/config.json").symlink_to("../../../blobs/2b")
    (snapshot / "absolute").symlink_to(blobs / "2b")
    (snapshot / "same.bin").symlink_to("model.bin")
    (snapshot / "all").symlink_to("../../blobs")
    return snapshot


@pytest.mark.parametrize("has_rsync", [True, False])
def test_links_out_of_the_folder_arrive_as_their_content(
    shell: OpenSshShell, machine: MachineSshd, tmp_path: Path, has_rsync: bool
) -> None:
    if not has_rsync:
        machine.override_program("rsync", "exit 127")
    there = machine.home / f"model {has_rsync}"
    try:
        for _ in range(2):
            shell.send(
                _snapshot(tmp_path) if not there.exists() else tmp_path / "models/snapshots/abc",
                there.name,
                timeout_s=60,
            )
    finally:
        (machine.folder / "bin/rsync").unlink(missing_ok=True)
    assert (there / "model.bin").read_text() == (there / "same.bin").read_text() == "weights"
    assert (there / "sub/config.json").read_text() == (there / "absolute").read_text() == "config"
    assert not (there / "model.bin").is_symlink()
    assert (there / "all/1a").read_text() == "weights"
    assert (there / "same.bin").is_symlink(), "what is sent as well is not sent twice"


@pytest.mark.parametrize("has_rsync", [True, False])
def test_a_single_file_that_is_a_link_arrives_as_its_content(
    shell: OpenSshShell, machine: MachineSshd, tmp_path: Path, has_rsync: bool
) -> None:
    (tmp_path / "real.bin").write_text("weights")
    (tmp_path / "link.bin").symlink_to("real.bin")
    if not has_rsync:
        machine.override_program("rsync", "exit 127")
    try:
        shell.send(tmp_path / "link.bin", f"single {has_rsync}", timeout_s=60)
    finally:
        (machine.folder / "bin/rsync").unlink(missing_ok=True)
    assert (machine.home / f"single {has_rsync}/link.bin").read_text() == "weights"


def test_odd_names_arrive(shell: OpenSshShell, machine: MachineSshd, tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    names = [b"-b.txt", b"new\nline", b"\xff\xfe.bin", "späß 文".encode()]
    for name in names:
        Path(os.fsdecode(os.fsencode(tmp_path / "odd") + b"/" + name)).write_bytes(name)
    for target, script in (("odd rsync", None), ("odd tar", "exit 127")):
        if script:
            machine.override_program("rsync", script)
        shell.send(tmp_path / "odd", target, timeout_s=60)
        (machine.folder / "bin/rsync").unlink(missing_ok=True)
        there = os.fsencode(machine.home / target)
        assert {name: Path(os.fsdecode(there + b"/" + name)).read_bytes() for name in os.listdir(there)} == {
            name: name for name in names
        }


@pytest.mark.parametrize(
    ("link", "leads_to", "fault"),
    [
        ("broken", "nowhere", "the link broken leads nowhere"),
        ("broken", "../../nowhere", "the link broken leads nowhere"),
        ("self", "self", "the link self leads nowhere"),
        ("up", "..", "the link up leads back to a folder that contains it"),
    ],
)
def test_a_link_whose_content_cannot_be_sent_is_named(tmp_path: Path, link: str, leads_to: str, fault: str) -> None:
    (tmp_path / "in/data").mkdir(parents=True)
    (tmp_path / "in/data" / link).symlink_to(leads_to)
    with pytest.raises(CannotSend, match=fault):
        list(sent_entries(tmp_path / "in/data"))


def test_a_link_within_the_folder_that_contains_it_stays_a_link(tmp_path: Path) -> None:
    """No content is lost: it leads to the same entries there."""
    (tmp_path / "in/data").mkdir(parents=True)
    (tmp_path / "in/data/top").symlink_to("..")
    assert [(entry.name, entry.is_kept_link) for entry in sent_entries(tmp_path / "in")] == [
        ("data", False),
        ("data/top", True),
    ]


def test_what_has_no_content_is_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
    assert [entry.name for entry in sent_entries(tmp_path) if entry.is_left_out] == ["pipe", "socket"]
