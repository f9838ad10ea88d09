"""`gpuwatch ssh`: what it refuses, and the file of hosts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpuwatch.app.launches.logins import login_command
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.cli.launches.logins import _forward_options
from gpuwatch.domain.launches.instance import SshAddress
from gpuwatch.domain.launches.launch import InstanceCondition, Launch, LaunchState
from gpuwatch.testing.suite import case
from tests.cli.conftest import Shell
from tests.cli.launches.test_launches import BEGAN, ID, Rows

S = LaunchState
ADDRESS = SshAddress(host="203.0.113.7", port=41022)


@pytest.fixture
def rows(shell: Shell) -> Iterator[Rows]:
    shell.settings(f'database_url = "sqlite:///{shell.folder}/gpuwatch.db"\n')
    made = Rows(shell.folder)
    yield made
    made.store.close()


def run_one(rows: Rows, launch_id: str = ID, ssh: SshAddress | None = ADDRESS) -> Launch:
    launch = rows.move(
        rows.reserve(launch_id, offer_id=launch_id, machine_id=launch_id), S.STARTING, instance_id=f"1{launch_id[0]}"
    )
    return rows.move(launch, S.RUNNING, running_at=BEGAN, ssh=ssh)


def test_what_cannot_be_logged_in_to_is_one_line_with_its_exit_code(shell: Shell, rows: Rows) -> None:
    for words, code, text in (
        (("ssh",), 2, "expected a launch ID, or --config"),
        (("ssh", ID, "--config"), 2, "expected a launch ID, or --config"),
        (("ssh", ID, "-N"), 2, "-N needs -L PORT"),
        (("ssh", "h200"), 2, "there is no launch 'h200'; see: gpuwatch launches"),
    ):
        with case(" ".join(words)):
            ran = shell(*words)
            assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1)
            assert text in ran.err
    launch = run_one(rows, ssh=None)
    ran = shell("launches", "ssh", "h100")
    assert (ran.code, ran.err.count("\n")) == (3, 1)
    assert "vastai has not stated where to log in to instance 1a" in ran.err
    rows.move(launch, S.ENDED, ended_at=BEGAN, end_reason="idle")
    assert shell("ssh", ID).code == 2
    assert "is over (idle)" in shell("ssh", ID).err


def test_a_missing_client_is_one_line(shell: Shell, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    run_one(rows)
    monkeypatch.setenv("PATH", "/nowhere")
    ran = shell("ssh", "h100")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "apt install openssh-client" in ran.err


def test_the_file_of_hosts_names_what_runs_and_says_what_is_left_out(shell: Shell, rows: Rows) -> None:
    run_one(rows)
    away = run_one(rows, "b" * 12)
    rows.move(away, S.RUNNING, condition=InstanceCondition.OFFLINE, condition_since=BEGAN)
    path = shell.folder / "jobs-data/ssh/config"
    ran = shell("launches", "ssh", "--config")
    assert ran.out.splitlines() == [
        f"{path}: 1 host",
        "  ssh gpuwatch-h100",
        "add this line once, at the top of ~/.ssh/config:",
        f'Include "{path}"',
    ]
    assert f"left out: launch {'b' * 12} does not run now (offline)" in ran.err
    (shell.folder / "home/.ssh").mkdir(parents=True)
    (shell.folder / "home/.ssh/config").write_text(f'Include "{path}"\n')
    assert "Include" not in shell("ssh", "--config").out
    shell.settings(f'database_url = "sqlite:///{shell.folder}/gpuwatch.db"\n')
    (shell.folder / "gpuwatch.toml").rename(shell.folder / "other.toml")
    assert shell("--config", "other.toml", "ssh", "--config").code == 0


def test_a_login_brings_the_file_up_to_date_and_none_writes_it_unasked(shell: Shell, rows: Rows) -> None:
    path = shell.folder / "jobs-data/ssh/config"
    launch = run_one(rows)
    argv = login_command(load_settings(None), ID, ["nvidia-smi", "-l"])
    assert argv[-4:] == ["--", f"gpuwatch-{ID}", "nvidia-smi", "-l"]
    assert not path.exists()
    shell("ssh", "--config")
    run_one(rows, "b" * 12)
    rows.move(launch, S.ENDED, ended_at=BEGAN, end_reason="idle")
    login_command(load_settings(None), "h100")
    assert "gpuwatch-h100 gpuwatch-bbbbbbbbbbbb" in path.read_text()
    assert ID not in path.read_text()


def test_a_port_alone_leads_to_the_same_port_of_the_machine() -> None:
    refused = ["-o", "ExitOnForwardFailure=yes"]  # a port in use is no warning above a shell
    assert list(_forward_options(["8888"])) == [*refused, "-L", "8888:localhost:8888"]
    assert list(_forward_options(["8000:8888"])) == [*refused, "-L", "8000:localhost:8888"]
    full = "127.0.0.1:8000:10.0.0.1:80"
    assert list(_forward_options([full])) == [*refused, "-L", full]
    assert list(_forward_options([])) == []
