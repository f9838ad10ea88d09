"""The owner logs in to what the real daemon rented, by `gpuwatch ssh` and by the host file, until the launch ends."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.emulator import Delays, Marketplace
from gpuwatch.emulator.instances.machine_sshd import has_sshd
from tests.process.daemon_child import Home, bargain, wait_for

pytestmark = pytest.mark.skipif(not has_sshd(), reason="needs Debian's openssh-server")
MORE = """
ssh_key = "id"
on_running = "echo $GPUWATCH_SSH_USER $GPUWATCH_SSH_HOST $GPUWATCH_SSH_PORT > hook.txt"
"""


@pytest.fixture
def market(tmp_path: Path) -> Iterator[Marketplace]:
    quick = Delays(created_s=0.1, ssh_s=0.1, loading_s=0.1, running_s=0.3)
    folder = tmp_path / "machines"
    with Marketplace(seed=3, key="demo-key", size=4, odd_rows=False, delays=quick, machines=folder) as opened:
        for row in opened.offers():
            opened.withdraw(row["id"])
        yield opened


def test_the_owner_is_let_in_while_the_launch_runs(tmp_path: Path, market: Marketplace) -> None:
    home = Home(tmp_path, market.url)
    home.env["GPUWATCH_TEST_PACE"] = "20"
    key = tmp_path / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    with (tmp_path / "gpuwatch.toml").open("a") as file:
        file.write(MORE)
    bargain(market)
    with home.daemon():
        launch = wait_for(lambda: (found := home.launches()) and found[0]["ssh"] and found[0])
        (machine,) = (tmp_path / "machines").iterdir()
        (machine / "home/.ssh").mkdir()
        (machine / "home/.ssh/authorized_keys").write_text((tmp_path / "id.pub").read_text())
        ran = home.run("ssh", "cheap", "--", "echo ok; exit 7")
        assert (ran.returncode, ran.stdout) == (7, "ok\n"), ran.stderr
        hook = wait_for(lambda: (path := tmp_path / "hook.txt").exists() and path.read_text())
        assert hook.split() == [launch["ssh"]["user"], "127.0.0.1", str(launch["ssh"]["port"])]

        written = home.run("ssh", "--config")
        host_file = tmp_path / "jobs-data/ssh/config"
        assert written.stdout.splitlines()[-1] == f'Include "{host_file}"'
        argv = ["ssh", "-F", str(host_file), "gpuwatch-cheap", "echo by plain ssh"]
        plain = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        assert plain.stdout == "by plain ssh\n", plain.stderr
        assert host_file.stat().st_mode & 0o777 == 0o600

        assert home.run("stop", launch["launch_id"]).returncode == 0
        wait_for(lambda: "Host " not in host_file.read_text())
        wait_for(lambda: not (host_file.parent / launch["launch_id"]).exists())
    over = home.run("launches", "ssh", launch["launch_id"])
    assert over.returncode == 2
    assert "is over (stopped by the owner" in over.stderr
