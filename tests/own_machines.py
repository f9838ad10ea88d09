"""Machines that gpuwatch did not rent: Debian's sshd with an `nvidia-smi` that prints recorded rows."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpuwatch.emulator.instances.machine_sshd import MachineSshd
from tests.checkout import ROOT

RECORDED = ROOT / "tests/recorded/nvidia-smi"


def let_in(machine: MachineSshd, key: Path) -> str:
    """Make a key pair that the machine lets in; return the machine as `--ssh` takes it."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    machine.authorize(key.with_suffix(".pub").read_text().strip())
    return f"{machine.user}@127.0.0.1:{machine.port}"


def nvidia_smi(name: str) -> str:
    """A program that prints a recording: "A100 SXM"."""
    return f"cat {RECORDED / name.lower().replace(' ', '-')}.csv"


def prints(*rows: str) -> str:
    """A program that prints these rows."""
    return "\n".join(f"printf '%s\\n' '{row}'" for row in rows)
