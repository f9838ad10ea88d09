"""A real dstack server whose one cloud is this machine. Runs in a virtual environment with `dstack[server]`.

The server, its database, its pipelines and its command line are dstack's own. Replaced are the cloud (the backend `aws`
reads its offers from `offers.json` and starts a local process for each machine) and the SSH tunnel to a machine's agent
(a port on loopback). Source: dstack 0.22.5, `ComputeWithMultinodeSupport` and `register_configurator`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import gpuhunt
from dstack._internal.core.backends import configurators
from dstack._internal.core.backends.aws.models import AWSBackendConfig, AWSBackendConfigWithCreds
from dstack._internal.core.backends.base.backend import Backend
from dstack._internal.core.backends.base.compute import Compute, ComputeWithMultinodeSupport
from dstack._internal.core.backends.base.configurator import BackendRecord, Configurator
from dstack._internal.core.backends.base.offers import filter_offers_by_requirements
from dstack._internal.core.consts import DSTACK_RUNNER_HTTP_PORT
from dstack._internal.core.errors import NoCapacityError
from dstack._internal.core.models.backends.base import BackendType
from dstack._internal.core.models.instances import (
    Disk,
    Gpu,
    InstanceAvailability,
    InstanceOfferWithAvailability,
    InstanceRuntime,
    InstanceType,
    Resources,
)
from dstack._internal.core.models.runs import JobProvisioningData

FOLDER = Path(os.environ["CLUSTERS_FOLDER"])
MACHINE = Path(__file__).with_name("machine.py")


class LocalCompute(ComputeWithMultinodeSupport, Compute):
    """A cloud of local processes. `machines/ID/machine.json` has each one's port, address and process."""

    def get_offers(self, requirements: Any, full_offers: bool, unallocated_resources: bool) -> Iterator[Any]:
        return iter(list(filter_offers_by_requirements(map(_offer, _offers()), requirements)))

    def run_job(self, run: Any, job: Any, instance_offer: Any, *_: Any, **__: Any) -> JobProvisioningData:
        listed = next((one for one in _offers() if one["name"] == instance_offer.instance.name), None)
        rented = [one for one in _machines() if one["type"] == instance_offer.instance.name and one["alive"]]
        if listed is None or len(rented) >= listed["machines"]:
            raise NoCapacityError
        number = len(_machines()) + 1
        machine_id, address = f"i-{number:04d}", f"127.0.1.{number}"
        folder = FOLDER / "machines" / machine_id
        folder.mkdir(parents=True)
        facts = {
            "id": machine_id,
            "type": instance_offer.instance.name,
            "address": address,
            "run": run.run_spec.run_name,
        }
        (folder / "machine.json").write_text(
            json.dumps(facts | {"price": instance_offer.price, "rank": job.job_spec.job_num})
        )
        with (folder / "log").open("wb") as log:
            machine = subprocess.Popen(
                [sys.executable, "-S", MACHINE, folder, address],
                start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        (folder / "pid").write_text(str(machine.pid))
        return JobProvisioningData(
            backend=BackendType.AWS,
            instance_type=instance_offer.instance,
            instance_id=machine_id,
            hostname=address,
            internal_ip=address,
            region=instance_offer.region,
            price=instance_offer.price,
            username="root",
            ssh_port=22,
            dockerized=False,
        )

    def terminate_instance(self, instance_id: str, region: str, backend_data: str | None = None) -> None:
        folder = FOLDER / "machines" / instance_id
        if (folder / "pid").exists() and not (folder / "gone").exists():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int((folder / "pid").read_text()), signal.SIGKILL)
        (folder / "gone").touch()


class LocalBackend(Backend):
    TYPE = BackendType.AWS
    COMPUTE_CLASS = LocalCompute

    def __init__(self) -> None:
        self._compute = LocalCompute()

    def compute(self) -> LocalCompute:
        return self._compute


class LocalConfigurator(Configurator[Any, Any]):
    TYPE = BackendType.AWS
    BACKEND_CLASS = LocalBackend

    def validate_config(self, config: Any, default_creds_enabled: bool) -> None:
        pass

    def create_backend(self, project_name: str, config: Any) -> BackendRecord:
        return BackendRecord(config="{}", auth=config.creds.model_dump_json())

    def get_backend_config_with_creds(self, record: Any) -> AWSBackendConfigWithCreds:
        return AWSBackendConfigWithCreds(creds=json.loads(record.auth))

    def get_backend_config_without_creds(self, record: Any) -> AWSBackendConfig:
        return AWSBackendConfig()

    def get_backend(self, record: Any) -> LocalBackend:
        return LocalBackend()


class LocalConnection:
    """Instead of an SSH tunnel: the agent of a local machine listens on the machine's own address."""

    def __init__(self, ssh_private_key: Any, jpd: JobProvisioningData, jrd: Any, ephemeral: bool = False) -> None:
        self._path = FOLDER / "machines" / jpd.instance_id / "agent.sock"

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def forwarded_paths(self) -> dict[int, Path]:
        return {DSTACK_RUNNER_HTTP_PORT: self._path}


def _offers() -> list[dict[str, Any]]:
    return json.loads((FOLDER / "offers.json").read_text())


def _machines() -> list[dict[str, Any]]:
    found = sorted((FOLDER / "machines").glob("*/machine.json"))
    return [json.loads(path.read_text()) | {"alive": not (path.parent / "gone").exists()} for path in found]


def _offer(one: dict[str, Any]) -> InstanceOfferWithAvailability:
    gpus = [Gpu(name=one["gpu"], memory_mib=one["memory_gib"] * 1024, vendor=gpuhunt.AcceleratorVendor.NVIDIA)]
    resources = Resources(
        cpus=32, memory_mib=256 * 1024, gpus=gpus * one["count"], spot=one["spot"], disk=Disk(size_mib=500 * 1024),
        cpu_arch=gpuhunt.CPUArchitecture.X86,
    )  # fmt: skip
    return InstanceOfferWithAvailability(
        backend=BackendType.AWS,
        instance=InstanceType(name=one["name"], resources=resources),
        region=one["region"],
        price=one["price"],
        availability=InstanceAvailability.AVAILABLE,
        instance_runtime=InstanceRuntime.RUNNER,
    )


def main() -> None:
    """Start the server with the words of `dstack server`."""
    kept = [one for one in configurators._CONFIGURATOR_CLASSES if one.TYPE is not BackendType.AWS]
    configurators._CONFIGURATOR_CLASSES[:] = [*kept, LocalConfigurator]
    configurators._BACKEND_TYPES[:] = [one.TYPE for one in configurators._CONFIGURATOR_CLASSES]
    configurators.register_configurator(LocalConfigurator)

    from dstack._internal.server.background.pipeline_tasks import jobs_running
    from dstack._internal.server.services.docker import ImageConfig
    from dstack._internal.server.services.jobs.configurators import base
    from dstack._internal.server.services.runner import ssh

    ssh.InstanceConnection = LocalConnection  # type: ignore[misc, assignment]
    image = ImageConfig(), {gpuhunt.CPUArchitecture.X86}
    base._get_image_config_and_cpu_architectures = lambda name, registry_auth: image  # there is no registry here
    if lost_after := os.environ.get("CLUSTERS_LOST_AFTER_S"):  # two minutes in dstack
        jobs_running.JOB_DISCONNECTED_RETRY_TIMEOUT = timedelta(seconds=float(lost_after))

    from dstack._internal.cli.main import main as dstack

    sys.argv = ["dstack", "server", *sys.argv[1:]]
    dstack()


if __name__ == "__main__":
    main()
