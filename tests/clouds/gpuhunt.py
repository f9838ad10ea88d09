"""gpuhunt's published catalogs on loopback: a version and an archive with one table per cloud.

source: the code of gpuhunt 0.1.34 and the columns of its catalogs (v2), read 2026-11; prices invented.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Sequence
from typing import Any, ClassVar

from gpuwatch.emulator.answers import EmulatorReply, reply
from gpuwatch.emulator.provider_server import ProviderServer
from gpuwatch.emulator.request import EmulatorRequest

COLUMNS = (
    "instance_name", "location", "price", "cpu", "memory", "gpu_count", "gpu_name", "gpu_memory", "spot", "disk_size",
    "gpu_vendor", "flags", "cpu_arch", "provider_data",
)  # fmt: skip


def row(instance: str, location: str, price: float, gpu: str, vram_gb: float | str, **changes: Any) -> dict[str, Any]:
    """One row of a catalog: a machine with one GPU of NVIDIA, unless `changes` say otherwise."""
    return {
        "instance_name": instance, "location": location, "price": price, "cpu": 16, "memory": 200.0, "gpu_count": 1,
        "gpu_name": gpu, "gpu_memory": vram_gb, "spot": False, "disk_size": "", "gpu_vendor": "nvidia", "flags": "",
        "cpu_arch": "x86", "provider_data": "{}",
    } | changes  # fmt: skip


def market() -> dict[str, list[dict[str, Any]]]:
    """Return a small market: the contents of each catalog."""
    nebius = [
        row("gpu-h100-sxm 1gpu-16vcpu-200gb", "eu-north1", 2.95, "H100", 80.0),
        row("gpu-h100-sxm 8gpu-128vcpu-1600gb", "eu-north1", 23.6, "H100", 80.0, gpu_count=8, cpu=128, memory=1600.0),
        row("gpu-h100-sxm 8gpu-128vcpu-1600gb", "eu-north1", 10.0, "H100", 80.0, gpu_count=8, cpu=128, spot=True),
        row("gpu-b200-sxm 8gpu-160vcpu-1792gb", "us-central1", 44.0, "B200", 180.0, gpu_count=8, cpu=160),
        row("cpu-e2 4vcpu-16gb", "eu-north1", 0.1, "", "", gpu_count=0, gpu_vendor=""),
    ]
    verda = [
        row("1H100.80S.32V", "FIN-01", 2.19, "H100", 80.0),
        row("1H100.80S.32V", "FIN-01", 0.77, "H100", 80.0, spot=True),
        row("1A100.40S.22V", "FIN-01", 0.72, "A100", 40.0),
        row("1RTXPRO6000.30V", "FIN-03", 1.39, "RTXPRO6000", 96.0),
    ]
    oci = [
        row("BM.GPU.H100.8", "us-ashburn-1", 80.0, "H100", 80.0, gpu_count=8, cpu=112, memory=2048.0),
        row("BM.GPU.MI300X.8", "us-ashburn-1", 48.0, "MI300X", 192.0, gpu_count=8, gpu_vendor="amd"),
        row("VM.GPU.A10.1", "eu-frankfurt-1", 2.0, "A10", 24.0),
    ]
    cloudrift = [
        row("rtx49-7c-kn.1", "us-east-nc-nr-1", 0.39, "RTX4090", 24.0),
        row("h100-30c-kn.1", "us-east-nc-nr-1", 1.99, "H100", 80.0),
    ]
    return {"cloudrift": cloudrift, "nebius": nebius, "oci": oci, "verda": verda}


class GpuhuntCatalogs(ProviderServer):
    """`GET /{cloud}/version` and `GET /{cloud}/{version}/catalog.zip`; 404 for a cloud that has none."""

    ROUTES: ClassVar = (
        ("GET", r"/([a-z]+)/version", "version_of"),
        ("GET", r"/([a-z]+)/([0-9A-Za-z._-]+)/catalog\.zip", "archive_of"),
    )

    def __init__(self, rows: dict[str, list[dict[str, Any]]] | None = None, version: str = "20261121-7") -> None:
        super().__init__()
        self.rows = market() if rows is None else rows
        self.versions = dict.fromkeys(self.rows, version)

    def version_of(self, _: EmulatorRequest, cloud: str) -> EmulatorReply:
        """Return the name of the newest version, as plain text."""
        if cloud not in self.rows:
            return reply({"error": "no such key"}, 404)
        return EmulatorReply(200, f"{self.versions[cloud]}\n".encode())

    def archive_of(self, _: EmulatorRequest, cloud: str, version: str) -> EmulatorReply:
        """Return one version of a catalog."""
        if cloud not in self.rows or version != self.versions[cloud]:
            return reply({"error": "no such key"}, 404)
        return EmulatorReply(200, archive(cloud, self.rows[cloud]))


def archive(cloud: str, rows: Sequence[dict[str, Any]]) -> bytes:
    """Return a catalog in its published form."""
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, COLUMNS)
    writer.writeheader()
    writer.writerows(rows)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr(zipfile.ZipInfo(f"{cloud}.csv", (2026, 11, 21, 0, 0, 0)), table.getvalue())
    return packed.getvalue()
