"""A run of a job on its machine: folders, the command's script, its variables, the transfer of inputs. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from gpuwatch.domain.jobs.job import Job
from gpuwatch.domain.jobs.job_values import JobFiles
from gpuwatch.domain.setup.store_addresses import is_remote

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GIT = re.compile(r"(git\+.*|git@.*|ssh://.*|.*\.git(@[\w./-]+)?)")


def job_folder(job_id: str) -> str:
    """The folder of a job, relative to the home of the machine's user; ids consist of `a-z2-7`."""
    return f"gpuwatch/{job_id}"


def work_folder(job_id: str) -> str:
    """The folder in which the command runs."""
    return f"{job_folder(job_id)}/work"


def run_folder(job_id: str, run_number: int) -> str:
    """The folder of a run; its name is the fencing number."""
    return f"{job_folder(job_id)}/runs/{run_number}"


def remove_others(job_id: str) -> str:
    """Shell that removes the folders of all other jobs."""
    return (
        f"mkdir -p {job_folder(job_id)} && find gpuwatch -mindepth 1 -maxdepth 1 ! -name {job_id} -exec rm -rf {{}} +"
    )


def runner(job_id: str, *words: str | int) -> str:
    """A shell command that calls the runner."""
    return shlex.join(["sh", f"{job_folder(job_id)}/runner.sh", *map(str, words)])


def command_script(job: Job, run_number: int, checkpoint: str | None) -> str:
    """The script for the runner: the set-up, then the command or its resume command.

    Args:
        checkpoint: path of the checkpoint that was sent, relative to the work folder; None: start from scratch.
    """
    spec = job.definition
    lines = [f"export GPUWATCH_JOB={shlex.quote(job.name)} GPUWATCH_RUN={run_number}"]
    command = spec.script if spec.script is not None else spec.command
    if spec.checkpoint is not None:
        lines.append(f"mkdir -p {shlex.quote(_parent(spec.checkpoint.path))}")
        if checkpoint is not None:
            lines.append(f"export GPUWATCH_CHECKPOINT={shlex.quote(checkpoint)}")
            command = spec.checkpoint.resume or command
    if spec.setup:
        lines.append(f"( {spec.setup}\n) || exit")
    return "\n".join([*lines, command, ""])


def assignments(variables: Mapping[str, str]) -> str:
    """Shell that sets variables, to be passed on standard input only: it may contain secrets."""
    return "".join(f"export {name}={shlex.quote(text)}\n" for name, text in variables.items() if _NAME.fullmatch(name))


def is_pulled(source: str) -> bool:
    """Whether the machine fetches an input itself: git, HTTP, S3; gpuwatch sends `rclone:` inputs."""
    return not is_remote(source) and ("://" in source or _GIT.fullmatch(source) is not None)


def is_local(source: str) -> bool:
    """Whether an input is a file or folder on the machine of gpuwatch."""
    return not is_remote(source) and not is_pulled(source)


def pull_script(one: JobFiles) -> str:
    """Shell that fetches an input into the work folder; if repeated, it continues or does nothing."""
    target, source = shlex.quote(one.target), one.source
    part = shlex.quote(f"{one.target.rstrip('/')}.part")
    if _GIT.fullmatch(source):
        url, _, ref = source.removeprefix("git+").partition(".git@")
        url = f"{url}.git" if ref else url
        branch = f"--branch {shlex.quote(ref)} " if ref else ""
        return (
            f"[ -d {target}/.git ] || {{ rm -rf {part} && git clone -q --depth 1 {branch}-- {shlex.quote(url)} {part}"
            f" && mv {part} {target}; }}"
        )
    quoted = shlex.quote(source)
    made = f"[ -e {target} ] || {{ mkdir -p {shlex.quote(_parent(one.target))} && "
    if source.startswith(("http://", "https://")):
        return (
            f"{made}{{ if command -v curl >/dev/null; then curl -fsSL --retry 3 -C - -o {part} {quoted};"
            f" else wget -q -c -O {part} {quoted}; fi; }} && mv {part} {target}; }}"
        )
    if source.startswith("s3://"):
        place = "${RCLONE_S3_ENDPOINT:-${AWS_ENDPOINT_URL_S3:-${AWS_ENDPOINT_URL:-}}}"  # rclone reads only its own
        remote = shlex.quote(":s3,env_auth:" + source.removeprefix("s3://"))
        return (
            f"{made}{{ if command -v rclone >/dev/null; then"
            f' RCLONE_S3_ENDPOINT="{place}" rclone copyto {remote} {part};'
            f" else aws s3 cp --quiet {quoted} {part}; fi; }} && mv {part} {target}; }}"
        )
    return f"{made}rclone copyto {quoted} {part} && mv {part} {target}; }}"


def result_patterns(results: Sequence[JobFiles]) -> list[str]:
    """The patterns for the runner's listing, relative to the work folder."""
    return [result.source.removeprefix("./") for result in results]


def checkpoint_pattern(path: str) -> str:
    """The runner's listing patterns for checkpoints: the content of a folder, or what matches a pattern."""
    return path.removeprefix("./").rstrip("/")


def _parent(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0] or "."
