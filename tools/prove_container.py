"""Proves deploy/Containerfile without a registry or a container engine: its steps, and what they made, in plain roots.

    sudo python -m tools.prove_container [--keep] FOLDER

FOLDER, which needs 3 GB, gets a Debian root by debootstrap in place of the base image, and a root for each stage, in
which each RUN runs by chroot. Then the last root runs as a container engine would run it: in namespaces of its own, as
process 1, read-only, with a random user that has no name and no HOME, without capabilities; only /data can be written.
Needs root, debootstrap, util-linux, and the network for packages. It never builds an image, and tests no network rules.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
BASES = {"debian:bookworm-slim": "bookworm"}
_OF_HOST = re.compile(r"(?i)PIP_|(HTTPS?|NO)_PROXY$|SSL_CERT_FILE$")  # what reaches the network of a build
_START_S = 120.0


class Step(NamedTuple):
    """One instruction of a Containerfile."""

    name: str
    text: str


class Image(NamedTuple):
    """A root folder, and how its program is run."""

    root: Path
    env: dict[str, str]
    folder: str
    command: list[str]
    health: list[str]
    user: str


def steps(text: str) -> Iterator[Step]:
    """The instructions, with their continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        name, _, rest = line.strip().partition(" ")
        if name:
            yield Step(name.upper(), " ".join(rest.split()) if name.upper() != "CMD" else rest)


class Builder:
    """Carries out the steps in folders."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stages: dict[str, Path] = {}

    def build(self, found: Sequence[Step]) -> Image:
        """Run all steps; the last stage is the image."""
        root, env, folder, user = Path(), {}, "/", "0"
        words: dict[str, list[str]] = {}
        for step in found:
            print(f"  {step.name} {step.text[:100]}", flush=True)
            if step.name == "FROM":
                root, env, folder, user = self._stage(step.text), {}, "/", "0"
            elif step.name == "RUN":
                self._run(root, env, folder, step.text)
            elif step.name == "COPY":
                self._copy(root, folder, step.text)
            elif step.name == "ENV":
                name, _, value = step.text.partition("=")
                env[name] = value
            elif step.name == "WORKDIR":
                folder = step.text
                (root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
            elif step.name == "USER":
                user = step.text
            elif step.name in {"ENTRYPOINT", "CMD"}:
                words[step.name] = json.loads(step.text)
            elif step.name == "HEALTHCHECK":
                words[step.name] = json.loads(step.text.partition("CMD ")[2])
            elif step.name not in {"VOLUME", "EXPOSE", "STOPSIGNAL"}:
                raise SystemExit(f"{step.name}: not known here")
        return Image(root, env, folder, words["ENTRYPOINT"] + words["CMD"], words["HEALTHCHECK"], user)

    def _stage(self, text: str) -> Path:
        base, _, name = text.partition(" AS ")
        suite = BASES[base]
        origin = self._folder / f"base-{suite}"
        if not (origin / "etc/debian_version").exists():
            _call(["debootstrap", "--variant=minbase", suite, str(origin)])
        root = self._folder / f"stage-{len(self._stages)}"
        shutil.rmtree(root, ignore_errors=True)
        _call(["cp", "--archive", str(origin), str(root)])
        self._stages[name or "last"] = root
        return root

    def _run(self, root: Path, env: dict[str, str], folder: str, command: str) -> None:
        """Run a command in a root, with this machine's network settings and certificates, which do not stay in it."""
        binds = [f"mount --bind /dev {root}/dev", f"mount -t proc proc {root}/proc"]
        (root / "run/host-certs").mkdir(parents=True, exist_ok=True)
        binds.append(f"mount --bind -o ro /etc/ssl/certs {root}/run/host-certs")
        (root / "etc/resolv.conf").unlink(missing_ok=True)
        shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
        of_host = {name: value for name, value in os.environ.items() if _OF_HOST.match(name)}
        of_host |= dict.fromkeys(("PIP_CERT", "SSL_CERT_FILE"), "/run/host-certs/ca-certificates.crt")
        of_host.pop("PIP_FIND_LINKS", None)
        given = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **of_host, **env}
        inner = f"cd {shlex.quote(folder)} && {command}"
        chroot = [
            "chroot",
            str(root),
            "/usr/bin/env",
            "-i",
            *(f"{k}={v}" for k, v in given.items()),
            "sh",
            "-ec",
            inner,
        ]
        script = " && ".join([*binds, f"exec {shlex.join(chroot)}"])
        _call(["unshare", "--mount", "--pid", "--fork", "--propagation", "private", "sh", "-ec", script])

    def _copy(self, root: Path, folder: str, text: str) -> None:
        words = text.split()
        origin = ROOT
        if words[0].startswith("--from="):
            origin = self._stages[words.pop(0).partition("=")[2]]
        *sources, target = words
        to = root / Path(folder, target).as_posix().lstrip("/")
        is_folder = target.endswith("/") or len(sources) > 1
        for source in sources:
            path = origin / source.lstrip("/")
            if path.is_dir():
                shutil.copytree(
                    path, to, symlinks=True, dirs_exist_ok=True, ignore=_ignored if origin == ROOT else None
                )
            else:
                to.mkdir(parents=True, exist_ok=True) if is_folder else to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, to / path.name if is_folder else to)


_ignored = shutil.ignore_patterns("__pycache__")


class Container:
    """Runs programs of an image: read-only, a random user without a name, no HOME, /data alone can be written."""

    def __init__(self, image: Image, data: Path) -> None:
        self._image = image
        self.data = data
        self.uid = random.randint(1_000_000_000, 1_999_999_999)
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir(mode=0o770)
        os.chown(data, self.uid, 0)

    def command(self, words: Sequence[str], *, enter: int | None = None) -> list[str]:
        """What starts the words as process 1, or beside the container's process `enter`."""
        root = self._image.root
        env = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in self._image.env.items())]
        user = [
            "setpriv",
            f"--reuid={self.uid}",
            "--regid=0",
            "--clear-groups",
            "--no-new-privs",
            "--bounding-set=-all",
        ]
        inner = f'cd {self._image.folder} && exec "$@"'
        chroot = ["chroot", str(root), *user, *env, "sh", "-ec", inner, "sh", *words]
        if enter is not None:
            return ["nsenter", f"--target={enter}", "--mount", "--pid", *chroot]
        setup = [
            f"mount --bind {root} {root}",
            f"mount --bind {self.data} {root}/data",
            f"mount -t proc proc {root}/proc",
            f"mount -t tmpfs -o size=64k,mode=755 tmpfs {root}/dev",
            *(f"touch {root}/dev/{one} && mount --bind /dev/{one} {root}/dev/{one}" for one in ("null", "urandom")),
            f"mount -o remount,ro,bind {root}",
            f"mount -o remount,ro {root}/dev",
        ]
        script = " && ".join([*setup, f"exec {shlex.join(chroot)}"])
        return [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--propagation",
            "private",
            "sh",
            "-ec",
            script,
        ]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run to the end."""
        return subprocess.run(self.command(words), capture_output=True, text=True, timeout=300, check=False)


def prove(image: Image, folder: Path) -> None:
    """Raise SystemExit at the first promise that does not hold."""
    container = Container(image, folder / "data")
    _expect("its user is not root", image.user not in {"0", "root"})
    found = container.run(
        "sh", "-c", "id -u; id -g; echo ${HOME-none}; touch /opt/x /tmp/x /etc/x 2>/dev/null || echo ro"
    )
    _expect("a random user, no HOME, a read-only root", found.stdout.split() == [str(container.uid), "0", "none", "ro"])
    version = container.run("gpuwatch", "--version")
    _expect(version.stdout.strip() or version.stderr, version.returncode == 0)
    demo = container.run("gpuwatch", "demo")
    _expect("gpuwatch demo", demo.returncode == 0 and "rented once" in demo.stdout, demo)
    _daemon(container, image)
    again = container.run("gpuwatch", "upgrade", "--check")
    _expect("its database is in /data", "/data/gpuwatch.db" in again.stdout and "nothing to do" in again.stdout, again)
    print("left in /data:", ", ".join(sorted(path.name for path in container.data.iterdir())))


def _daemon(container: Container, image: Image) -> None:
    """Start it as process 1, wait until it is healthy, and end it by SIGTERM."""
    (container.data / "gpuwatch.toml").write_text(
        "dry_run = true\n[providers.vastai]\nbase_url = 'http://127.0.0.1:9'\n"
        "[[watch]]\nname = 'h100'\ngpu = ['H100']\nmax_price = 2.0\n"
    )
    log = container.data.with_name("log.txt")
    with log.open("wb") as output:
        child = subprocess.Popen(container.command(image.command), stdout=output, stderr=output)
    pid = _first_process(child)
    try:
        began = time.monotonic()
        while subprocess.run(container.command(image.health, enter=pid), capture_output=True, check=False).returncode:
            if time.monotonic() > began + _START_S or child.poll() is not None:
                _expect("it becomes healthy", False, log=log)
            time.sleep(0.5)
        _expect(f"healthy after {time.monotonic() - began:.1f} s", True)
        began = time.monotonic()
        os.kill(pid, signal.SIGTERM)
        child.wait(timeout=30)
        _expect(
            f"SIGTERM ends it: {time.monotonic() - began:.1f} s, exit code {child.returncode}", not child.returncode
        )
        _expect("it ends within ten seconds", time.monotonic() < began + 10)
    finally:
        if child.poll() is None:
            os.kill(pid, signal.SIGKILL)


def _first_process(child: subprocess.Popen[bytes]) -> int:
    """The process that is number 1 inside, once it is gpuwatch."""
    for _ in range(200):
        children = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        if children and b"gpuwatch" in Path(f"/proc/{children[0]}/cmdline").read_bytes().split(b"\0")[1][-9:]:
            return int(children[0])
        time.sleep(0.05)
    raise SystemExit("FAILED: it did not start")


def _expect(
    what: str, holds: bool, ran: subprocess.CompletedProcess[str] | None = None, log: Path | None = None
) -> None:
    if holds:
        print(f"ok      {what}", flush=True)
        return
    shown = f"{ran.stdout}{ran.stderr}" if ran is not None else log.read_text() if log is not None else ""
    raise SystemExit(f"FAILED  {what}\n{shown[-4000:]}")


def _call(command: list[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"FAILED  {shlex.join(command)[:300]}\n{(done.stdout + done.stderr)[-4000:]}")


def main() -> None:
    """Build, then prove."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--keep", action="store_true", help="keep the roots; the base root always stays")
    options = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        sys.exit("it needs root and debootstrap (Debian: apt-get install debootstrap)")
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    image = Builder(folder).build(list(steps((ROOT / "deploy/Containerfile").read_text())))
    size = subprocess.run(["du", "-sm", str(image.root)], capture_output=True, text=True, check=True).stdout.split()[0]
    print(f"the image's root has {size} MB")
    prove(image, folder)
    if not options.keep:
        for stage in folder.glob("stage-*"):
            shutil.rmtree(stage)


if __name__ == "__main__":
    main()
