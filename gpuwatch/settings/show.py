"""The effective settings with their origin and masked secrets, for `gpuwatch config show`; and a file to begin with."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch import notifiers, providers
from gpuwatch.domain.setup.durations import EnvText, plain_json
from gpuwatch.ports.declarations import OptionSpec
from gpuwatch.settings.external_values import ExternalValue, database_url, origin_text
from gpuwatch.settings.interpolation import HOOKS, InheritedSettings, is_reference, resolve_references
from gpuwatch.settings.model import Settings
from gpuwatch.settings.plugin_options import KeyPath, variable_of
from gpuwatch.settings.reference import SettingRow, setting_rows, watch_rows
from gpuwatch.settings.settings_errors import Location, key_lines
from gpuwatch.settings.sources import Sources, collect, merge_sources, parse_file
from gpuwatch.settings.validate import validate

MASK = "********"
_ALWAYS_MASKED = {
    "api_key",
    "previous_api_key",
    "bot_token",
    "password",
    "urls",
}  # even if a plugin does not declare it


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """One effective setting. `value` is ready for JSON.

    Attributes:
        origin: default, file, env NAME or credential NAME.
        source: the same with the table and line of the file: `watch "a" line 12`, `group night line 4`, `defaults line
            2`, `line 3`; or `built in`.
    """

    key: str
    value: Any
    origin: str
    source: str


def origins(
    config: str | None = None,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    known_spellings: Collection[str] = (),
) -> tuple[str | None, list[Origin]]:
    """The settings file, and every setting with its origin. Raises SettingsError: the settings are invalid."""
    sources = collect(config, env, cwd)
    tree, external = merge_sources(parse_file(sources), sources)
    resolved = resolve_references(tree, sources)
    settings = validate(resolved, sources, external, known_spellings)
    written = _Written(resolved.inherited, sources, external)
    rows = [*_plain(written, sources, settings.providers), *_watches(written, settings)]
    return (str(sources.file) if sources.file else None), rows


class _Written:
    """What is written, and where.

    Args:
        inherited: merged tables before their references are resolved.
        external: what is set outside the file.
    """

    def __init__(
        self, inherited: InheritedSettings, sources: Sources, external: Mapping[KeyPath, ExternalValue]
    ) -> None:
        self.tree = inherited.tree
        self._inherited, self._external = inherited, external
        self._lines: dict[Location, int] = {}
        for number, path in key_lines(sources.content.decode("utf-8-sig", "replace")):
            for length in range(1, len(path) + 1):  # `launch.env.A = …` makes the tables above it
                self._lines.setdefault(path[:length], number)

    def row(self, row: SettingRow, watch: tuple[int, str] | None = None) -> tuple[Any, str, str]:
        """Value, origin and source of a setting.

        Args:
            watch: number and name of the watch that has it.
        """
        loc: Location = row.path if watch is None else ("watch", watch[0], *row.path[1:])
        value: Any = self.tree
        for part in loc:
            value = value[part] if isinstance(part, int) else value.get(part) if isinstance(value, dict) else None
        if value is None:
            return _default(row.default), "default", "built in"
        place = self._inherited.place_of(loc)
        path: KeyPath = row.path if place[0] == "watch" else tuple(map(str, place))
        above = (path[:length] for length in range(len(path), 0, -1))
        origin = next((self._external[one] for one in above if one in self._external), None)
        origin = origin or next((one for key, one in self._external.items() if key[: len(path)] == path), None)
        if origin is not None:
            return _json(value), origin_text(origin), origin_text(origin)
        return _json(value), "file", self._table_and_line(place, "" if watch is None else watch[1])

    def _table_and_line(self, place: Location, watch: str) -> str:
        number = next((self._lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in self._lines), None)
        table: str | None = None
        match place:
            case ("watch", _, *_):
                table = f'watch "{watch}"'
            case ("group", name, *_):
                table = f"group {name}"
            case ("defaults", *_):
                table = "defaults"
        return " ".join(filter(None, (table, None if number is None else f"line {number}")))


def _plain(written: _Written, sources: Sources, enabled: Collection[str]) -> Iterator[Origin]:
    for row in setting_rows():
        value, origin, source = written.row(row)
        if row.key == "database_url":
            url = str(written.tree.get("database_url") or "").strip()
            value = without_password(database_url(url, sources.env, sources.cwd))
        elif row.path[0] == "providers" and row.path[-1] == "enabled":
            value = row.path[1] in enabled
        yield Origin(key=row.key, value=_masked(row.path[-1], value, row.secret), origin=origin, source=source)


def _watches(written: _Written, settings: Settings) -> Iterator[Origin]:
    for number, (table, watch) in enumerate(zip(written.tree.get("watch", []), settings.watches, strict=True)):
        for row in watch_rows():
            if _is_table_missing(table, row):
                continue
            value, origin, source = written.row(row, (number, watch.name))
            key = f'watch "{watch.name}".{".".join(row.path[1:])}'
            yield Origin(key=key, value=_masked(row.path[-1], value, row.secret), origin=origin, source=source)


def _is_table_missing(watch: Mapping[str, Any], row: SettingRow) -> bool:
    """Is it a key of a launch, bid, registry or volume that this watch does not have?"""
    table: Any = watch
    for part in row.path[1:-1]:
        table = table.get(part)
        if table is None:
            return row.path[1] == "launch"
    return False


def _default(text: str) -> Any:
    import tomllib  # noqa: PLC0415

    return tomllib.loads(f"value = {text}")["value"] if text else None


def _json(value: Any) -> Any:
    """Environment text in JSON, decoded; numbers as numbers; a commission without a mode as it is written."""
    if isinstance(value, dict) and value.keys() == {"rate"}:
        return _json(value["rate"])
    if isinstance(value, EnvText):
        try:
            return plain_json(value)
        except ValueError:
            return str(value)
    return value


def _masked(key: str, value: Any, secret: bool = False) -> Any:
    if value is None:
        return None
    if is_reference(value):
        return value
    if secret or key in _ALWAYS_MASKED:
        return [MASK] * len(value) if isinstance(value, list) else MASK
    if key in HOOKS:
        return {name: _masked_hook(name, one) for name, one in value.items()} if isinstance(value, dict) else MASK
    if key == "env" and isinstance(value, dict):
        return {name: one if is_reference(one) else MASK for name, one in value.items()}
    if key == "onstart":
        return f"({len(str(value).splitlines())} lines)"
    return value


def _masked_hook(key: str, value: Any) -> Any:
    """Only the host of a webhook's address: the path is often the secret."""
    if is_reference(value):
        return value
    if key != "url":
        return MASK
    from urllib.parse import urlsplit  # noqa: PLC0415

    parts = urlsplit(str(value))
    return f"{parts.scheme}://{parts.hostname}/{MASK}"


def without_password(url: str) -> str:
    """A database URL without its secrets."""
    scheme, mark, rest = url.partition("://")
    if "@" not in rest:
        return url
    userinfo, _, host = rest.rpartition("@")
    name = userinfo.partition(":")[0]
    return (
        f"{scheme}{mark}{name}:{MASK}@{host.partition('?')[0]}" if ":" in userinfo else f"{scheme}{mark}{name}@{host}"
    )


# --- the commented `gpuwatch.toml` that `gpuwatch init` writes --------------------------------------------------------


SCHEMA_FILE = "gpuwatch.schema.json"


def template() -> str:
    """The whole file. Providers and channels contribute their own sections."""
    return "\n".join(
        [_HEAD.rstrip("\n"), "", *_providers(), _RECORD.rstrip("\n"), "", *_channels(), _WATCHDOG + _WATCH]
    )


def _providers() -> Iterator[str]:
    for name in providers.names():
        if text := providers.info(name).template:
            yield text.rstrip("\n")
            yield ""


def _channels() -> Iterator[str]:
    yield _NOTIFY
    for name in notifiers.names():
        info = notifiers.info(name)
        lines = info.template.splitlines() or [_line(name, spec) for spec in info.options]
        yield "\n".join(f"# {line}" for line in (f"[notify.{name}]", *lines))
        yield ""


def _line(channel: str, spec: OptionSpec) -> str:
    """An option of a channel without a template."""
    if spec.secret:
        return f"# secret, prefer the environment: {variable_of(('notify', channel, spec.name))}"
    samples = {
        "text": '"…"',
        "id": '"…"',
        "ids": "[]",
        "texts": '["…"]',
        "number": "1.0",
        "integer": "1",
        "switch": "true",
    }
    value = samples[spec.kind] if spec.default is None else json.dumps(spec.default, ensure_ascii=False)
    return f"{spec.name} = {value}".ljust(31) + f" # {spec.about}"


_NOTIFY = """\
# [notify]
# quiet_hours = ["22:00-08:00"]    # only critical alerts are sent in this window; others wait
"""
_HEAD = """\
#:schema ./gpuwatch.schema.json
# Settings of gpuwatch. `gpuwatch check` polls once, `gpuwatch run` starts the daemon.
# Every key can also be set in the environment: GPUWATCH_ and its path, as in GPUWATCH_PROVIDERS__VASTAI__BASE_URL.
# Keep keys and tokens there (or in .env): VAST_API_KEY, GPUWATCH_NOTIFY__TELEGRAM__BOT_TOKEN, …

timezone = "UTC"                  # for screens and `active` windows, such as "Europe/Berlin"
# database_url = "sqlite:///gpuwatch.db"   # default: in your state folder; or postgresql+psycopg://…
dry_run = true                    # gpuwatch rents nothing until this is false

[budget]                          # for all launches together; a launch that would exceed a limit is refused
max_usd_hour = 20.0               # USD per hour, all instances together
# max_usd_day = 100.0             # USD per day (UTC)
# max_usd_month = 1000.0          # USD per month (UTC)
max_instances = 4                 # active at the same time
on_reached = "warn"               # "warn": send an alert; "stop": also end launches. Also alerts at 80 %

"""
_RECORD = """\
[record]
gpu = []                          # GPUs to record without a watch, such as ["A100", "RTX 4090"]

"""
_WATCHDOG = """\
# [history]
# keep = { polls = "30d", intervals = "400d", hourly = "forever" }   # the default of a new store
# lake = "s3://bucket/prefix"     # or the path of a folder: once a day, what is over is added there as Parquet

# [orchestrator]                  # rents the machines of multi-node jobs
# tool = "dstack"
# program = "dstack"              # a name on PATH, or a path

# [watchdog]                      # lets an external service notice when this machine or its network fails
# heartbeat_url = "https://hc-ping.com/your-uuid"   # GET every healthy minute; URL/start, URL/fail: healthchecks.io

"""
_WATCH = """\
[[watch]]
name = "h100"                     # after a rename, add renamed_from = "h100" to keep its launches and limits
gpu = "H100"                      # family or name, one or a list; in any spelling that a provider uses
gpu_count = 1                     # a number, or { min = 1, max = 8 }
max_price = 2.50                  # USD per hour of ONE GPU, commission included; fires at or under this price
action = "alert"                  # "alert", "ask" or "launch"
spot = "no"                       # "no", "only", "any"; "first": spot for spot_for = "45m", then any
# listed = false                  # ignore list prices (stock unknown); a watch that rents always ignores them
# cpu_arch = "any"                # a watch that rents uses Arm machines only with "arm64" or "any"
disk_gb = 50                      # GB of disk to rent; part of the price
# min_vram_gib = 79               # GiB of one GPU
min_reliability = 0.95            # 0 to 1; anybody can be a host at vast.ai: keep both lines if you rent there.
verified = true                   # Remove both for a provider that reports neither, such as RunPod or Lambda
# regions = ["EU", "NO", "Texas"] # countries; EU, EEA, NA, APAC; words of a region's name
# min_cuda = 12.4
# min_download_mbps = 500         # Mbit/s
# hold_for = "5m"                 # time at or under max_price before it fires
# active = ["22:00-08:00", "Sat-Sun"]   # local time; default: always
repeat_every = "6h"               # reminder interval, or "never"
# max_per_day = 3                 # with action "ask" or "launch": launches per day (UTC), including failed ones
# notify = ["telegram"]           # default: all configured channels

# [defaults.watch]                # keys of a watch, for all of them
# [group.night]                   # keys of a watch, for those with group = "night"; they override the defaults
#   a watch's own keys override both; in a list, "..." stands for the inherited entries: regions = ["...", "NO"]

# [watch.budget]                  # for this watch only, in addition to [budget]
# max_usd_day = 50.0

# [watch.launch]                  # for action "ask" and "launch"
# image = "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime"   # or a provider's template: template = "…"
# onstart = "bash /workspace/train.sh"    # or a file relative to this one: onstart_file = "train.sh"
# env = { WANDB_MODE = "offline" }        # a secret: { from_env = "NAME" } or { from_file = "/run/secrets/name" }
# ports = [8000]                  # or "8080:8000", "53/udp"
# runtype = "ssh"                 # or "jupyter", "args", …
# label_extra = "night run"       # appended to gpuwatch's label
#   a private image: registry = { server = "ghcr.io", username = "me", password = { from_env = "GHCR_TOKEN" } }
#   a volume of the provider: volume = { mount = "/data", volume_id = 123 }
# max_active = 1                  # launches of this watch active at the same time
# max_total = 1                   # launches in total; 0: unlimited
# max_runtime = "24h"             # then the instance is destroyed; required with dry_run = false
# self_destruct = false           # true: the instance ends itself at its deadline, even if gpuwatch is down
# ready_within = "15m"            # if not running by then: destroy it and try the next offer
# verify = "listed"               # check before it counts as running: "none", "listed", "ssh"
# max_tries = 5                   # offers to try each time the watch fires …
# try_for = "2m"                  # … and the total time for that
# approve_within = "15m"          # action "ask": how long you can approve a quote
#   spot: bid = { max = 1.20, step = 0.05 } in USD per GPU-hour, and relaunch = true after a preemption
# wasteful_below = 30             # percent of GPU utilisation …
# wasteful_for = "30m"            # … for this long: send an alert
# idle_below = 10                 # percent of GPU utilisation …
# idle_for = "20m"                # … for this long: destroy the instance
#   with `active` windows: stop_outside = true destroys the instance when the window closes
# on_price_increase = "alert"     # "stop", or "accept_under" max_price
# on_running = "notify-send running"      # or { url = "https://…", secret = { from_env = "HOOK_SECRET" } }
#   also: before_stop, on_ended
# hook_timeout = "30s"            # for each hook, 1s to 5m
"""
