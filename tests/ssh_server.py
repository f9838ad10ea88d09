"""A real SSH server on loopback (asyncssh): it accepts one key, and runs its commands with its own shell."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.late import LateModule

asyncssh: Any = LateModule("asyncssh")


class SshServer:
    """Its address, its received commands, and the accepted key."""

    def __init__(self, key_file: Path) -> None:
        self.key_file = key_file
        self.port = 0
        self.commands: list[str] = []
        self.users: list[str] = []


async def _run(process: Any, server: SshServer, environment: Mapping[str, str]) -> None:
    server.commands.append(process.command or "")
    server.users.append(process.get_extra_info("username"))
    child = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", process.command or "", env=dict(environment),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, complaint = await child.communicate()
    process.stdout.write(said)
    process.stderr.write(complaint)
    process.exit(child.returncode or 0)


@contextmanager
def ssh_server(folder: Path, environment: Mapping[str, str]) -> Iterator[SshServer]:
    """Listen until the block ends.

    Args:
        folder: where the client's key is written.
        environment: of the commands.
    """
    key = asyncssh.generate_private_key("ssh-ed25519")
    key_file = folder / "id_ed25519"
    key_file.write_bytes(key.export_private_key())
    key_file.chmod(0o600)
    server = SshServer(key_file)
    loop = asyncio.new_event_loop()
    listening = threading.Event()
    done = asyncio.Event()

    async def serve() -> None:
        acceptor = await asyncssh.listen(
            "127.0.0.1", 0,
            server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            authorized_client_keys=asyncssh.import_authorized_keys(key.export_public_key().decode()),
            process_factory=lambda process: _run(process, server, environment), encoding=None,
        )  # fmt: skip
        server.port = acceptor.get_port()
        listening.set()
        await done.wait()
        acceptor.close()
        await acceptor.wait_closed()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    try:
        assert listening.wait(20)
        yield server
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(20)
        loop.run_until_complete(asyncio.sleep(0.05))  # transports close in the next turn of the loop
        loop.close()
