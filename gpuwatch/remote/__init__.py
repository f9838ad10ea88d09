"""Work on a rented machine: a shell over the system's OpenSSH, its keys, and the runner that supervises a command."""

from importlib import resources


def runner_script() -> bytes:
    """Return the runner: a POSIX-sh program that is copied to the machine."""
    return resources.files("gpuwatch.remote").joinpath("runner.sh").read_bytes()
