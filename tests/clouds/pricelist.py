"""Public price lists on loopback, each under its own name: "/oracle/pls/apex/…". Small, in the documented formats.

source: the clouds' documents and public readers of their lists, read 2026-11; values invented, of realistic size.
"""

from __future__ import annotations

from typing import Any, ClassVar

from gpuwatch.emulator.answers import EmulatorReply, reply
from gpuwatch.emulator.provider_server import ProviderServer
from gpuwatch.emulator.request import EmulatorRequest

_RATES = """<?xml version="1.0" encoding="UTF-8"?>
<gesmes:Envelope xmlns:gesmes="http://www.gesmes.org/xml/2002-08-01" xmlns="http://www.ecb.int/vocabulary/2002-08-01/eurofxref">
	<gesmes:subject>Reference rates</gesmes:subject>
	<gesmes:Sender><gesmes:name>European Central Bank</gesmes:name></gesmes:Sender>
	<Cube><Cube time='2026-11-20'>
			<Cube currency='USD' rate='1.1500'/>
			<Cube currency='JPY' rate='176.50'/>
			<Cube currency='GBP' rate='0.8800'/>
	</Cube></Cube>
</gesmes:Envelope>"""


def oracle() -> dict[str, Any]:
    """Products; licences and other metrics are among them."""
    gpus = {"B112237": 16.0, "B110978": 14.0, "B110519": 10.0, "B98415": 10.0, "B109485": 6.0, "B95907": 4.0}
    rows = [_oracle_row(part, "GPU Per Hour", price) for part, price in {**gpus, "B109479": 3.5}.items()]
    rows.append(_oracle_row("B99999", "OCPU Per Hour", 0.025))
    rows.append(_oracle_row("B88888", "GPU Per Hour", 2.0, "Cloud@Customer - GPU"))
    return {"items": rows, "links": []}


def scaleway(zone: str) -> dict[str, Any]:
    """Servers of one zone, by name."""
    servers = {"DEV1-S": _server(0.0088, None, 2), "PRO2-M": _server(0.219, 0, 16)}
    if zone == "fr-par-2":
        for name, gpus, price in (("H100-1-80G", 1, 2.73), ("H100-2-80G", 2, 5.46), ("H100-SXM-8-80G", 8, 23.03)):
            servers[name] = _server(price, gpus, 24 * gpus)
        servers |= {"L40S-1-48G": _server(1.4, 1, 8), "L4-1-24G": _server(0.75, 1, 8)}
    if zone == "pl-waw-2":
        servers |= {"H100-1-80G": _server(2.73, 1, 24), "L4-2-24G": _server(1.5, 2, 16)}
    return {"servers": servers}


def vultr() -> dict[str, Any]:
    """Plans with and without GPUs, with parts of GPUs, sold out, and with missing values."""
    return {
        "plans": [
            _plan("vc2-1c-1gb", "vc2", 0.007, ["ewr", "fra"]),
            _plan("vc2-1c-0.5gb-free", "vc2", 0, ["ewr"]),
            _plan("vcg-a100-1c-6g-4vram", "vcg", 0.123, ["ewr", "fra"], "NVIDIA_A100", 4),
            _plan("vcg-a100-12c-120g-80vram", "vcg", 2.397, ["ewr", "", "fra"], "NVIDIA_A100", 80),
            _plan("vcg-a16-12c-128g-32vram", "vcg", 0.942, ["sea"], "NVIDIA_A16", 32),
            _plan("vcg-l40s-16c-180g-48vram", "vcg", 1.671, ["lax"], "NVIDIA_L40S", 48),
            _plan("vcg-h100-24c-240g-80vram", "vcg", 2.99, [], "NVIDIA_H100", 80),
            _plan("vcg-a40-24c-120g-48vram", "vcg", 1.7, ["lax"], "NVIDIA_A40", 48) | {"deploy_ondemand": False},
            _plan("vcg-a100-96c-960g-640vram", "vdm", 19.1, ["ewr"]),
        ],
        "meta": {"total": 9, "links": {"next": "", "prev": ""}},
    }


def vultr_metal() -> dict[str, Any]:
    """Bare metal: the plan's name states the GPU."""
    return {
        "plans_metal": [
            _plan("vbm-4c-32gb", "SSD", 0.18, ["ewr"]),
            _plan("vbm-112c-2048gb-8-h100-gpu", "NVMe", 23.92, ["sea"]),
            _plan("vbm-256c-2048gb-8-mi300x-gpu", "NVMe", 14.8, ["ord"]),
            _plan("vbm-256c-3072gb-8-b200-gpu", "NVMe", 31.1, []),
        ],
        "meta": {"total": 4, "links": {"next": "", "prev": ""}},
    }


def ovh() -> dict[str, Any]:
    """A part of the order catalogue: hourly and monthly prices of plans, in 0.00000001 EUR."""
    hourly = {"h100-380": 2.8, "h100-760": 5.6, "a100-180": 2.75, "l40s-90": 1.4, "b3-8": 0.102}
    addons = [_addon(f"{name}.consumption", price, "consumption") for name, price in hourly.items()]
    addons.append(_addon("h100-380.monthly.postpaid", 2044.0, "renew"))
    addons.append(_addon("ai-training.h100-1-gpu.minute.consumption", 0.05166667, "consumption"))
    return {"catalogId": 1, "locale": {"currencyCode": "EUR", "subsidiary": "FR"}, "plans": [], "addons": addons}


def verda() -> list[dict[str, Any]]:
    """Instance types; prices are texts in one version and numbers in another."""
    return [
        _verda("1H100.80S.30V", "1x H100 SXM5 80GB", 1, 80, "2.29", spot_price="0.8015"),
        _verda("8H200.141S.176V", "8x H200 SXM5 141GB", 8, 1128, "23.92", spot_price_per_hour="8.37"),
        _verda("1A100.40S.22V", "1x A100 SXM4 40GB", 1, 40, 0.7211, spot_price=0.2523),
        _verda("2RTXPRO6000.60V", "2x RTX PRO 6000 96GB", 2, 192, "2.78"),
        _verda("CPU.4V.16G", "", 0, 0, "0.0279", spot_price="0.0098"),
    ]


def lium() -> dict[str, Any]:
    """Nodes available now, whole or in parts."""
    return {
        "nodes": [
            _node("n-h100", "H100 80GB HBM3", 8, 80, 1.9, country_code="US", region="CA"),
            _node("n-4090", "RTX 4090", 4, 24, 0.32, available_gpu_count=3, min_rentable_gpu_count=1),
            _node("n-b200", "B200", 8, 180, 3.4, available_gpu_count=0, country_code="IS"),
            _node("n-spot", "A100-SXM4-80GB", 2, 80, 0.6, tier="spot", country_code=None),
        ]
    }


def cloudrift() -> dict[str, Any]:
    """Instance types with their variants, and availability per data centre."""
    return {
        "version": "2025-03-21",
        "data": {
            "instance_types": [
                {
                    "name": "rtx49",
                    "brand_short": "RTX 4090",
                    "variants": [
                        _variant("rtx49-8c-nr.1", 1, 39, 24, {"us-east-nc-nr-1": 3, "us-west-1": 0}),
                        _variant("rtx49-8c-nr.2", 2, 78, 24, {"us-east-nc-nr-1": 1}),
                    ],
                },
                {
                    "name": "rtx59",
                    "brand_short": "RTX 5090",
                    "variants": [_variant("rtx59-16c-nr.1", 1, 65, 32, {"us-east-nc-nr-1": 2})],
                },
            ]
        },
    }


def akash() -> dict[str, Any]:
    """Statistics over bids, per model."""
    return {
        "availability": {"total": 600, "available": 140},
        "models": [
            _model("h100", "80Gi", "SXM5", 120, 11, 1.49),
            _model("a100", "80Gi", "PCIe", 40, 9, 0.79),
            _model("rtx4090", "24Gi", "PCIe", 60, 22, 0.37),
            _model("t4", "16Gi", "PCIe", 8, 0, 0.08),
        ],
    }


def linode() -> dict[str, Any]:
    """Types; those with GPUs have a class of their own."""
    rows = [
        _linode("g1-gpu-rtx6000-1", "gpu", 1, 1.5),
        _linode("g2-gpu-rtx4000a2-s", "gpu", 2, 1.05),
        _linode("g3-gpu-rtxpro6000-blackwell-1", "gpu", 1, 0),
        _linode("g6-nanode-1", "nanode", 0, 0.0075),
    ]
    return {"data": rows, "page": 1, "pages": 1, "results": len(rows)}


def daytona() -> dict[str, Any]:
    """Rates of the GPU alone, and of additional resources."""
    gpus = {"H100": 3.95, "H200": 4.54, "RTX-PRO-6000": 3.03, "RTX-4090": 0.9}
    resources = {"vcpuPerHour": 0.0504, "memoryGiBPerHour": 0.0162, "diskGiBPerHour": 0.000108}
    return {
        "gpus": [
            {"type": name, "onDemandPricePerHour": price, "spotPricePerHour": round(price * 0.6, 3)}
            for name, price in gpus.items()
        ],
        "resources": {"onDemand": resources, "spot": resources},
    }


def cudo() -> dict[str, Any]:
    """Machine types with the number of free GPUs."""
    return {
        "machineTypes": [
            _cudo("epyc-milan-rtx-a5000", "RTX A5000", 5, "0.35"),
            _cudo("sapphire-rapids-h100", "H100 SXM", 0, "1.98"),
            _cudo("epyc-rome", "", 0, "0"),
        ]
    }


class PriceListServer(ProviderServer):
    """All of them at one address."""

    ROUTES: ClassVar[tuple[tuple[str, str, str], ...]] = (
        ("GET", r"/rates/stats/eurofxref/eurofxref-daily\.xml", "rates"),
        ("GET", r"/(oracle)/pls/apex/cetools/api/v1/products/", "listed"),
        ("GET", r"/scaleway/instance/v1/zones/([a-z0-9-]+)/products/servers", "servers"),
        ("GET", r"/(vultr)/v2/plans", "listed"),
        ("GET", r"/(vultr-metal)/v2/plans-metal", "listed"),
        ("GET", r"/(ovh)/v1/order/catalog/public/cloud", "listed"),
        ("GET", r"/(verda)/v1/instance-types", "listed"),
        ("GET", r"/(lium)/api/public/v1/nodes", "listed"),
        ("POST", r"/(cloudrift)/api/v1/instance-types/list", "listed"),
        ("GET", r"/(akash)/v1/gpu-prices", "listed"),
        ("GET", r"/(linode)/v4/linode/types", "listed"),
        ("GET", r"/(daytona)/gpu-pricing", "listed"),
        ("GET", r"/(cudo)/v1/vms/machine-types", "listed"),
    )

    def __init__(self, **stage: Any) -> None:
        super().__init__(**stage)
        self._answers: dict[str, Any] = {
            "oracle": oracle(),
            "vultr": vultr(),
            "vultr-metal": vultr_metal(),
            "ovh": ovh(),
            "verda": verda(),
            "lium": lium(),
            "cloudrift": cloudrift(),
            "akash": akash(),
            "linode": linode(),
            "daytona": daytona(),
            "cudo": cudo(),
        }

    def rates(self, _request: EmulatorRequest) -> EmulatorReply:
        """Return the central bank's file."""
        return EmulatorReply(200, _RATES.encode(), content_type="text/xml")

    def listed(self, request: EmulatorRequest, name: str) -> EmulatorReply:
        """Return a source's list; a POST needs its version and selector."""
        if name == "cloudrift" and "selector" not in request.body().get("data", {}):
            return reply({"error": "no selector"}, 400)
        return reply(self._answers[name])

    def servers(self, request: EmulatorRequest, zone: str) -> EmulatorReply:
        """Return one page of a zone's servers: a page after the last is empty."""
        return reply(scaleway(zone) if request.params.get("page", "1") == "1" else {"servers": {}})


def _oracle_row(part: str, metric: str, price: float, name: str = "Compute - GPU") -> dict[str, Any]:
    prices = [{"model": "PAY_AS_YOU_GO", "value": price}, {"model": "MONTHLY_COMMIT", "value": price * 0.67}]
    return {
        "partNumber": part,
        "displayName": name,
        "metricName": metric,
        "serviceCategory": "Compute - GPU",
        "currencyCodeLocalizations": [{"currencyCode": "USD", "prices": prices}],
    }


def _server(price: float, gpus: int | None, cpus: int) -> dict[str, Any]:
    return {
        "hourly_price": price,
        "monthly_price": round(price * 730, 2),
        "gpu": gpus,
        "ncpus": cpus,
        "ram": cpus * 10 * 1024**3,
        "arch": "x86_64",
    }


def _plan(
    name: str, kind: str, price: float, places: list[str], gpu: str | None = None, vram: int | None = None
) -> dict[str, Any]:
    plan = {"id": name, "type": kind, "hourly_cost": price, "monthly_cost": price * 730, "locations": places}
    plan |= {"vcpu_count": 12, "cpu_threads": 64, "ram": 122880, "disk": 1400, "deploy_ondemand": True}
    return plan if gpu is None else plan | {"gpu_type": gpu, "gpu_vram_gb": vram}


def _addon(code: str, price_eur: float, capacity: str) -> dict[str, Any]:
    pricing = {"capacities": [capacity], "price": round(price_eur * 10**8), "tax": 0, "interval": 1}
    install = {"capacities": ["installation"], "price": 0, "tax": 0, "interval": 0}
    return {"planCode": code, "invoiceName": code, "pricings": [install, pricing]}


def _verda(name: str, gpu: str, gpus: int, memory: int, price: str | float, **more: Any) -> dict[str, Any]:
    return {
        "id": f"id-{name}",
        "instance_type": name,
        "price_per_hour": price,
        "currency": "usd",
        "gpu": {"description": gpu, "number_of_gpus": gpus},
        "gpu_memory": {"description": f"{memory}GB GPU RAM", "size_in_gigabytes": memory},
        "cpu": {"number_of_cores": 30},
        "memory": {"size_in_gigabytes": 120},
        **more,
    }


def _node(name: str, gpu: str, gpus: int, memory: int, price: float, **more: Any) -> dict[str, Any]:
    node = {
        "id": name,
        "gpu_model": gpu,
        "gpu_count": gpus,
        "available_gpu_count": gpus,
        "min_rentable_gpu_count": gpus,
        "gpu_memory_gb": memory,
        "price_per_gpu_hour": price,
        "tier": "secure",
        "country_code": "US",
        "region": None,
        "rent_url": f"https://lium.io/nodes/{name}",
    }
    return node | more


def _variant(name: str, gpus: int, cents: float, memory_gib: int, nodes: dict[str, int]) -> dict[str, Any]:
    return {
        "name": name,
        "gpu_count": gpus,
        "cost_per_hour": cents,
        "vram": memory_gib * 1024**3,
        "dram": 48 * 1024**3,
        "disk": 500 * 1024**3,
        "cpu_count": 8,
        "nodes_per_dc": nodes,
    }


def _model(name: str, ram: str, interface: str, total: int, free: int, price: float) -> dict[str, Any]:
    spread = {"min": price * 0.8, "max": price * 1.6, "avg": price * 1.05, "med": price, "weightedAverage": price}
    return {
        "vendor": "nvidia",
        "model": name,
        "ram": ram,
        "interface": interface,
        "availability": {"total": total, "available": free},
        "price": {"currency": "USD", **spread},
    }


def _linode(name: str, kind: str, gpus: int, price: float) -> dict[str, Any]:
    costs = {"hourly": price, "monthly": price * 730}
    return {"id": name, "label": name, "class": kind, "gpus": gpus, "vcpus": 8, "memory": 32768, "price": costs}


def _cudo(name: str, gpu: str, free: int, price: str) -> dict[str, Any]:
    return {
        "dataCenterId": "no-luster-1",
        "machineType": name,
        "gpuModel": gpu,
        "totalGpuFree": free,
        "gpuPriceHr": {"value": price},
    }
