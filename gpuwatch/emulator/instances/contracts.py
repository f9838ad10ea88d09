"""The wire format of an instance, and the list of instances with its filters, pages and counts."""

from __future__ import annotations

import base64
from collections import Counter
from typing import Any

import msgspec

from gpuwatch.emulator.answers import bare_refusal, refuse
from gpuwatch.emulator.instances.emulated_instance import EmulatedInstance
from gpuwatch.emulator.market.machines import cost_object
from gpuwatch.emulator.market.offer_query import OPERATORS

MASK = "0" * 64
OFFER_FIELDS = (
    "machine_id", "host_id", "bundle_id", "cpu_arch", "cpu_cores", "cpu_cores_effective", "cpu_name", "cpu_ram",
    "gpu_name", "gpu_arch", "gpu_ram", "gpu_frac", "gpu_lanes", "gpu_mem_bw", "bw_nvlink", "disk_name", "disk_bw",
    "direct_port_count", "static_ip", "geolocation", "verification", "rentable", "hosting_type", "dlperf",
    "total_flops", "score", "reliability2", "os_version", "mobo_name", "pci_gen", "pcie_bw", "num_gpus", "logo",
    "webpage", "storage_cost", "storage_total_cost", "credit_discount_max",
    # The official client prints the first two of a live instance; the other two are in published rows.
    "inet_up", "inet_down", "cuda_max_good", "driver_version",
)  # fmt: skip
FILTER_COLUMNS = frozenset({
    "id", "label", "machine_id", "host_id", "actual_status", "intended_status", "cur_state", "next_state", "gpu_name",
    "num_gpus", "image_uuid", "is_bid", "start_date", "verification", "template_id", "template_hash_id", "geolocation",
})  # fmt: skip


def instance_row(instance: EmulatedInstance, now: float) -> dict[str, Any]:
    """Return an instance as the marketplace shows it."""
    row = {name: instance.row[name] for name in OFFER_FIELDS}
    gpu, disk = instance.base_usd_hour, instance.disk_usd_hour
    ram = instance.row["gpu_total_ram"]
    return {
        "id": instance.id,
        **status_fields(instance),
        **create_fields(instance),
        **row,
        **address_fields(instance),
        **usage_fields(instance, now),
        "gpu_totalram": ram,
        "disk_space": float(instance.body["disk"]),
        "start_date": instance.created_at,
        "end_date": instance.end_date,
        "duration": instance.end_date - now,
        "min_bid": instance.min_bid,
        "is_bid": instance.is_bid,
        "dph_base": gpu,
        "dph_total": gpu + disk,
        "dlperf_per_dphtotal": instance.row["dlperf"] / max(gpu + disk, 1e-9),
        "flops_per_dphtotal": instance.row["total_flops"] / max(gpu + disk, 1e-9),
        "search": without_premium(cost_object(gpu, disk, 0.0)),
        "instance": without_premium(cost_object(0, disk, 0)),
        "vram_costperhour": gpu / ram if ram else 0.0,
        "credit_balance": None,
        "credit_discount": None,
        "client_run_time": 1.1,
        "host_run_time": 2592000.0,
        "external": False,
        "time_remaining": "",
        "time_remaining_isbid": "",
        **instance.overrides,
    }


def without_premium(costs: dict[str, Any]) -> dict[str, Any]:
    """Drop fields that only offers have."""
    return {name: value for name, value in costs.items() if name != "slaPremiumPerHour"}


def status_fields(instance: EmulatedInstance) -> dict[str, Any]:
    """Return the five fields of its state."""
    names = ("actual_status", "intended_status", "cur_state", "next_state", "status_msg")
    return {name: getattr(instance, name) for name in names}


def create_fields(instance: EmulatedInstance) -> dict[str, Any]:
    """Return the fields from the create request."""
    body = instance.body
    env = body.get("env") or {}
    return {
        "label": instance.label,
        "template_id": None,
        "template_hash_id": body.get("template_hash_id"),
        "template_name": None,
        "image_uuid": instance.image,
        "image_args": body.get("args") or [],
        "image_runtype": body.get("runtype") or "ssh",
        "extra_env": [[name, value] for name, value in env.items()] if isinstance(env, dict) else [],
        "onstart": body.get("onstart"),
        "jupyter_token": MASK,
    }


def address_fields(instance: EmulatedInstance) -> dict[str, Any]:
    """Return its addresses: ssh soon after the create, ports only while running."""
    has_ssh, running = instance.has_ssh, instance.actual_status == "running"
    first_port = 40_000 + instance.id % 20_000
    host, port = instance.ssh or ("ssh5.vast.ai", 10_000 + instance.id % 50_000)
    address = instance.row["public_ipaddr"] if instance.ssh is None else host
    direct = first_port if instance.ssh is None else port
    port_mappings = {
        name: port_mapping(first_port + n) for n, name in enumerate(["22/tcp", *opened_ports(instance.body)])
    }
    return {
        "local_ipaddrs": "10.2.202.31 172.17.0.1 \n",
        "public_ipaddr": address,
        "ssh_host": host if has_ssh else None,
        "ssh_idx": "5" if has_ssh else None,
        "ssh_port": port if has_ssh else None,
        # the market has no such field, because its containers let in root; a server here lets in its own user
        **({"ssh_user": instance.ssh_user} if instance.ssh_user not in {None, "root"} else {}),
        "machine_dir_ssh_port": 5300,
        "direct_port_start": first_port if running else -1,
        "direct_port_end": first_port + len(port_mappings) - 1 if running else -1,
        "ports": port_mappings | {"22/tcp": port_mapping(direct)} if running else None,
    }


def opened_ports(body: dict[str, Any]) -> list[str]:
    """Return the container ports that the create opened with `-p HOST:PORT` in its `env`."""
    env = body.get("env")
    mappings = [name.split()[1] for name in env if name.startswith("-p ")] if isinstance(env, dict) else []
    ports = [mapping.rpartition(":")[2] for mapping in mappings]
    return list(dict.fromkeys(port if "/" in port else f"{port}/tcp" for port in ports if port not in ("22", "22/tcp")))


def port_mapping(port: int) -> list[dict[str, str]]:
    """Return one host port, under both protocols."""
    return [{"HostIp": "0.0.0.0", "HostPort": str(port)}, {"HostIp": "::", "HostPort": str(port)}]  # noqa: S104


def usage_fields(instance: EmulatedInstance, now: float) -> dict[str, Any]:
    """Return the measurements of a running instance; null until they exist."""
    on, use = instance.measured, instance.utilisation(now)
    busy = (use or 0.0) > 0
    since = instance.running_since
    return {
        "uptime_mins": (now - since) / 60 if since is not None and on else None,
        "cpu_util": 3.2 if on else 0.0,
        "mem_limit": 125.88 if on else None,
        "mem_usage": 18.4 if on else None,
        "vmem_usage": (64.1 if busy else 0.0) if on else None,
        "gpu_util": use if on else None,
        "gpu_temp": (61.0 if busy else 31.0) if on else None,
        "disk_util": 31.4 if on else -1,
        "disk_usage": 31.4 if on else -1,
    }


def filter_and_sort(rows: list[dict[str, Any]], filters: Any, order: Any) -> list[dict[str, Any]]:
    """Filter and order instances by `select_filters` and `order_by`."""
    if not isinstance(filters or {}, dict) or not all(isinstance(one, dict) for one in as_list(order)):
        raise bare_refusal(400, "invalid_request", "Error in query parameters: Input should be a valid dictionary")
    for column, operations in (filters or {}).items():
        check_column(column)
        if not isinstance(operations, dict) or any(op not in OPERATORS for op in operations):
            message = f"Error in query parameters: {column:.60}: Input should be a valid dictionary"
            raise bare_refusal(400, "invalid_request", message)
        rows = [row for row in rows if all(matches(row[column], op, operand) for op, operand in operations.items())]
    for one in reversed(as_list(order) or [{"col": "id", "dir": "asc"}]):
        column = str(one.get("col"))
        check_column(column)
        rows = sorted(rows, key=lambda row: (row[column] is None, row[column] or 0), reverse=one.get("dir") == "desc")
    return rows


def as_list(order: Any) -> list[Any]:
    """Return the requested order as a list, whatever was sent."""
    return order if isinstance(order, list) else [order] if order else []


def matches(value: Any, op: str, operand: Any) -> bool:
    """Compare one value; values that cannot be compared do not pass."""
    if value is None and not (op == "eq" and operand is None):
        return False
    try:
        return OPERATORS[op](value, operand)
    except TypeError:
        return False


def check_column(column: str) -> None:
    """Refuse computed and unknown columns."""
    if column not in FILTER_COLUMNS:
        raise bare_refusal(400, "invalid_request", f"Error in query parameters: {column:.60} is not a valid search key")


def paginate(rows: list[dict[str, Any]], limit: int, token: str | None) -> tuple[list[dict[str, Any]], str | None]:
    """Cut one page out of ordered rows; the token names the last row of the previous page."""
    start = 0
    if token:
        last = read_token(token)
        exact = next((n + 1 for n, row in enumerate(rows) if row["id"] == last), None)
        # The row may be gone since the last page: in the usual order, by id, the next row is still clear.
        start = exact or next((n for n, row in enumerate(rows) if row["id"] > last), len(rows))
    page_rows = rows[start : start + limit]
    more = start + limit < len(rows)
    return page_rows, make_token(page_rows[-1]["id"]) if more and page_rows else None


def make_token(last: int) -> str:
    """Encode the id of a page's last row as a token."""
    return base64.b64encode(msgspec.json.encode({"values": {"id": last}})).decode()


def read_token(token: str) -> int:
    """Decode a token.

    Raises:
        RefusedRequest: it is not a valid token.
    """
    try:
        return int(msgspec.json.decode(base64.b64decode(token))["values"]["id"])
    except (ValueError, KeyError, TypeError, msgspec.DecodeError):
        raise refuse(400, "invalid_token", "Invalid pagination token") from None


def label_counts(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Count instances per label over all pages; those without a label under the empty text."""
    return dict(Counter(row["label"] or "" for row in rows))
