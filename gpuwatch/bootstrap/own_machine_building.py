"""Builds what reads the owner's own machines, for the daemon and for a command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.bootstrap.job_building import jobs_folder
from gpuwatch.engine.plan.own_machines import OwnMachines
from gpuwatch.errors import GpuwatchError
from gpuwatch.home_folder import expand_home
from gpuwatch.remote import runner_script
from gpuwatch.remote.own_machines import open_own_shell

if TYPE_CHECKING:
    from gpuwatch.ports.remote import RemoteShell
    from gpuwatch.settings import Settings


def own_machines(settings: Settings, hosts: Sequence[str], ssh_key: str | None) -> OwnMachines:
    """The machines with these hosts.

    Args:
        ssh_key: a private key, relative to the settings file; None: the user's own keys and agent.
    """
    base = Path(settings.source_file).parent if settings.source_file else Path()
    folder = jobs_folder(settings) / "own-machines"

    def open_shell(host: str) -> RemoteShell:
        try:
            key = None if ssh_key is None else (base / expand_home(ssh_key)).absolute()
            if key is not None:
                key.open("rb").close()
            return open_own_shell(host, key, folder)
        except OSError as error:
            raise GpuwatchError(f"cannot use {error.filename}: {error.strerror}") from error

    return OwnMachines(hosts, open_shell, runner_script())
