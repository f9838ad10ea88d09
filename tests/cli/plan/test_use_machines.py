"""`gpuwatch use --ssh`, against real SSH servers whose nvidia-smi prints recorded rows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.emulator.instances.machine_sshd import MachineSshd, has_sshd
from tests.checkout import ROOT
from tests.cli.conftest import Ran, Shell
from tests.own_machines import let_in, nvidia_smi, prints

pytestmark = pytest.mark.skipif(not has_sshd(), reason="needs Debian's openssh-server")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MachineSshd]:
    with MachineSshd(tmp_path_factory.mktemp("machine")) as made:
        yield made


class Reader:
    """The command, with a key that the machine lets in."""

    def __init__(self, shell: Shell, machine: MachineSshd) -> None:
        self.shell, self.machine = shell, machine
        self.key = shell.folder / "key"
        self.host = let_in(machine, self.key)
        self.pins = shell.folder / "jobs-data/own-machines/known_hosts"
        shell.settings('database_url = "sqlite:///gpuwatch.db"\n')

    def __call__(self, *args: str) -> Ran:
        return self.shell("use", "--ssh", self.host, "--key", str(self.key), *args)

    def gpus(self, program: str, *args: str) -> list[Any]:
        self.machine.override_program("nvidia-smi", program)
        ran = self(*args, "--json")
        assert ran.code == 0, ran.err
        found: list[Any] = ran.json["machines"][0]["gpus"]
        return found

    def error(self, program: str) -> str:
        self.machine.override_program("nvidia-smi", program)
        ran = self("--json")
        assert ran.code == 3, ran.out
        return str(ran.json["machines"][0]["error"])


@pytest.fixture
def reader(shell: Shell, machine: MachineSshd) -> Reader:
    return Reader(shell, machine)


def test_recorded_machines_are_judged(reader: Reader) -> None:
    first, second = reader.gpus(nvidia_smi("A100 SXM"), "--price", "1.50")
    assert (first["gpu"], first["use_percent"], first["verdict"]) == ("A100 SXM 80GB", 84, "wasteful")
    assert (second["use_percent"], second["peak_memory_mib"], second["idle_usd_gpu_hour"]) == (89, 33695, 0.165)
    (split,) = reader.gpus(nvidia_smi("A800 MIG"))
    assert (split["use_percent"], split["verdict"], split["peak_memory_mib"]) == (None, None, 36537)
    (idle,) = reader.gpus(nvidia_smi("H100 idle"), "--price", "2")
    assert (idle["gpu"], idle["verdict"], idle["idle_usd_gpu_hour"], len(idle["smaller"])) == (
        "H100 SXM", "bottleneck", 2, 3,
    )  # fmt: skip
    consumer = reader.gpus(nvidia_smi("consumer"))
    assert [gpu["gpu"] for gpu in consumer] == ["RTX 4090", "T4"]
    (spark,) = reader.gpus(nvidia_smi("gb10"))
    assert (spark["use_percent"], spark["peak_memory_mib"], spark["smaller"]) == (0, None, [])


def test_the_table_says_what_idle_time_costs_and_how_little_was_read(reader: Reader) -> None:
    reader.machine.override_program("nvidia-smi", nvidia_smi("A100 SXM"))
    ran = reader("--price", "1.50")
    assert ran.code == 0, ran.err
    assert "1 reading" in ran.out
    assert "under 90 %" in ran.out
    assert "idle time costs $0.405/h" in ran.err
    assert "a peak may have been missed" in ran.err


def test_a_period_is_summed_up(reader: Reader) -> None:
    count = reader.machine.folder / "count"
    count.unlink(missing_ok=True)
    program = (
        f'echo x >> {count}; n=$(wc -l < {count}); echo "$((n * 10)), $((n * 100)), 24564, NVIDIA GeForce RTX 4090"'
    )
    (gpu,) = reader.gpus(program, "--for", "1s", "--every", "1s")
    assert gpu["samples"] >= 2
    assert gpu["peak_percent"] == 10 * gpu["samples"] == gpu["peak_memory_mib"] / 10
    assert gpu["use_percent"] == 5 * (gpu["samples"] + 1)


def test_readings_that_failed_meanwhile_are_counted(reader: Reader) -> None:
    count = reader.machine.folder / "failing"
    count.unlink(missing_ok=True)
    good = "echo '50, 100, 24564, NVIDIA GeForce RTX 4090'"
    lost = "echo 'No devices were found'"
    reader.machine.override_program("nvidia-smi", f"echo x >> {count}; [ $(wc -l < {count}) = 1 ] && {lost} || {good}")
    ran = reader("--for", "1s", "--every", "1s")
    assert ran.code == 0, ran.err
    assert f"{reader.host}: 1 of " in ran.out
    assert "readings failed" in ran.out
    count.unlink()
    (machine,) = reader("--for", "1s", "--every", "1s", "--json").json["machines"]
    assert (machine["error"], machine["failed_samples"]) == (None, 1)
    assert machine["gpus"][0]["samples"] >= 1


def test_hostile_output_is_refused_by_name(reader: Reader) -> None:
    assert "GPU 0: utilization.gpu" in reader.error(prints("5000, 1, 2, X"))
    assert "GPU 1: name" in reader.error(prints("5, 1, 2, X", "5, 1, 2, \x1b[31mred"))
    assert "more than 16,384 bytes" in reader.error("yes '5, 1, 2, " + "x" * 900 + "'")
    assert "no GPU there" in reader.error("exit 9")
    assert "it prints 'No devices were found'" in reader.error("echo 'No devices were found'; exit 6")
    ran = reader()
    assert ran.code == 3
    assert "\x1b" not in ran.out


def test_amd_cards_are_judged_and_a_die_costs_its_share(reader: Reader) -> None:
    (reader.machine.folder / "bin/nvidia-smi").unlink(missing_ok=True)
    reader.machine.override_program("rocm-smi", f"cat {ROOT / 'tests/recorded/amd-smi/rocm-smi-mi250.json'}")
    ran = reader("--price", "1.5", "--json")
    assert ran.code == 0, ran.err
    dies = ran.json["machines"][0]["gpus"]
    assert [(die["gpu"], die["use_percent"], die["memory_mib"]) for die in dies] == [
        ("MI250", 50, 65520),
        ("MI250", 0, 65520),
    ]
    assert [die["idle_usd_gpu_hour"] for die in dies] == [0.75, 1.5]


def test_a_changed_host_key_is_refused_and_nothing_asks(reader: Reader, tmp_path: Path) -> None:
    reader.gpus(nvidia_smi("A100 SXM"))
    pinned = reader.pins.read_text()
    assert f"[127.0.0.1]:{reader.machine.port} ssh-ed25519" in pinned
    assert reader.pins.parent.stat().st_mode & 0o777 == 0o700
    other = let_in(reader.machine, tmp_path / "other") and (tmp_path / "other.pub").read_text().split()[1]
    reader.pins.write_text(" ".join([*pinned.split()[:2], other]) + "\n")
    assert "its host key differs from the first contact" in reader.error(nvidia_smi("A100 SXM"))
    reader.pins.write_text(pinned)
    (reader.machine.folder / "etc/authorized_keys").write_text("")
    assert "Permission denied" in reader.error(nvidia_smi("A100 SXM"))


def test_one_hung_machine_delays_no_other_and_has_a_time_limit(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuwatch.engine.plan.own_machines.READ_TIMEOUT_S", 4.0)
    reader.machine.override_program("nvidia-smi", "sleep 300")
    began_s = time.monotonic()
    ran = reader("--ssh", f"{reader.machine.user}@127.0.0.1:1", "--json")
    assert ran.code == 3
    hung, refused = ran.json["machines"]
    assert "no answer within 4 s" in hung["error"]
    assert "Connection refused" in refused["error"]
    assert time.monotonic() - began_s < 60


def test_machines_of_the_settings(reader: Reader) -> None:
    reader.machine.override_program("nvidia-smi", nvidia_smi("A100 SXM"))
    listed = f'machines = [{{ host = "{reader.host}", usd_gpu_hour = 2 }}]'
    reader.shell.settings(f'database_url = "sqlite:///gpuwatch.db"\n[own_machines]\nssh_key = "key"\n{listed}\n')
    ran = reader.shell("plan", "use", "--machines", "--json")
    assert ran.code == 0, ran.err
    assert [gpu["price_usd_gpu_hour"] for gpu in ran.json["machines"][0]["gpus"]] == [2, 2]


def test_usage(shell: Shell) -> None:
    for args, why in (
        (("--machines",), "no machine is named"),
        (("--ssh", "-oProxyCommand=reboot"), "expected a host as for ssh"),
        (("--ssh", "gpu1", "--machines"), "use either --ssh or --machines"),
        (("--ssh", "gpu1", "--every", "5s"), "--every requires --for"),
        (("--ssh", "gpu1", "--launches"), "--launches cannot be combined"),
        (("--for", "5s"), "--for requires --ssh"),
    ):
        ran = shell("use", *args)
        assert (ran.code, why in ran.err) == (2, True), (args, ran.err)
