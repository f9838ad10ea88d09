"""The schema of `[watch.launch]` and of a budget, and its conversion to plain values.

First the field types and the tables around a launch (references, ports, bids, registries, volumes, hooks, hand-over,
relocation), then `LaunchTable` and `BudgetTable`.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema, model_validator

from gpuwatch.domain.setup.fields import (
    TEXT_OR_REFERENCE,
    Line,
    Measure,
    Number,
    Share,
    Span,
    SpanFrom1s,
    SpecTable,
    Switch,
    Usd,
    Whole,
    seconds,
    secret_of,
    text_or_secret,
)
from gpuwatch.domain.watches.launch_text import (
    MAX_ONSTART,
    OWN_VARIABLES,
    check_onstart,
    check_secret,
    check_url,
    check_value,
    check_word,
)
from gpuwatch.domain.watches.watch import (
    BidSpec,
    Budget,
    BudgetPolicy,
    HandoverSpec,
    HookSpec,
    LaunchSpec,
    PriceIncreasePolicy,
    RegistrySpec,
    RelocateSpec,
    VerificationMode,
    VolumeSpec,
)
from gpuwatch.secret import Secret

LABEL_EXTRA_MAX = 38  # accepted, because older labels had that much space
MAX_HOOK_S = 300.0
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_PORT = re.compile(r"(?:([0-9]{1,5}):)?([0-9]{1,5})(/tcp|/udp)?")
_HOOK_SPAN = {"type": "string", "examples": ["30s", "2m"]}
Word = Annotated[Line, BeforeValidator(lambda value: check_word(value) if isinstance(value, str) else value)]
VolumeId = Annotated[
    Line, BeforeValidator(lambda value: str(value) if type(value) is int else value, json_schema_input_type=int | str)
]
Percent = Annotated[Number, Field(gt=0, le=100)]


def _variable(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("expected names of environment variables: letters, digits and _")
    if value in OWN_VARIABLES:
        raise ValueError("reserved name: gpuwatch sets this variable itself")
    return value


def _port(value: Any) -> str:
    text = str(value) if isinstance(value, int) else value
    found = _PORT.fullmatch(text.strip()) if isinstance(text, str) else None
    if not found or not all(1 <= int(port) <= 65_535 for port in found.group(1, 2) if port):
        raise ValueError('expected a port, such as 8000, "8080:8000" (outside:inside) or "53/udp"')
    inside = str(int(found[2])) + ("/udp" if found[3] == "/udp" else "")
    return f"{int(found[1])}:{inside}" if found[1] else inside


def _ports(value: Any) -> Any:
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return [value]
    return value


def _label(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isascii() or not value.isprintable():
        raise ValueError("expected one non-empty line of printable ASCII")
    if len(value.strip()) > LABEL_EXTRA_MAX:
        raise ValueError(f"expected at most {LABEL_EXTRA_MAX} characters")
    return value.strip()


def _mount(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"/[A-Za-z0-9._/-]+", value) or ".." in value.split("/"):
        raise ValueError('expected an absolute folder on the instance, such as "/data"')
    return value


def _hook_span(value: Any) -> float:
    found = seconds(value)
    if not 1 <= found <= MAX_HOOK_S:
        raise ValueError("expected a duration from 1s to 5m")
    return found


def _hook(value: Any) -> Any:
    if isinstance(value, str):
        return {"command": value}
    if not isinstance(value, (dict, HookTable)):
        raise ValueError('expected a command in quotes, or { url = "https://…", secret = "…" }')  # noqa: TRY004
    return value


def shell_command(value: Any) -> str:
    """A command that is not empty. Raises ValueError."""
    if not isinstance(value, str) or not value.strip() or "\x00" in value:
        raise ValueError("expected a non-empty shell command in quotes")
    return value


def _script(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("expected text in quotes")  # noqa: TRY004
    return check_onstart(value)


HookSpan = Annotated[float, BeforeValidator(_hook_span), WithJsonSchema(_HOOK_SPAN)]
EnvName = Annotated[str, BeforeValidator(_variable)]
EnvValue = Annotated[
    str | Secret,
    PlainValidator(lambda value: text_or_secret(value, check_value), json_schema_input_type=TEXT_OR_REFERENCE),
]
Password = Annotated[Secret, secret_of(check_word)]
Signature = Annotated[Secret, secret_of(check_secret)]
HookUrl = Annotated[Secret, secret_of(check_url)]
Port = Annotated[str, BeforeValidator(_port, json_schema_input_type=int | str)]
Ports = Annotated[
    tuple[Port, ...], BeforeValidator(_ports, json_schema_input_type=int | str | list[int | str]), Field(max_length=64)
]
Label = Annotated[str, BeforeValidator(_label), WithJsonSchema({"type": "string", "maxLength": LABEL_EXTRA_MAX})]
Script = Annotated[str, BeforeValidator(_script), WithJsonSchema({"type": "string", "maxLength": MAX_ONSTART})]


class BidTable(SpecTable):
    """`bid = { max = 1.20, step = 0.05 }`."""

    max: Usd = Field(description="Maximum bid in USD per GPU-hour, commission included.")
    step: Usd = Field(
        default=Decimal("0.05"), description="Increment of a bid after it was outbid, in USD per GPU-hour."
    )

    @model_validator(mode="after")
    def _step_fits(self) -> BidTable:
        if self.step > self.max and "step" in self.model_fields_set:
            raise ValueError("expected step to be at most max")
        return self

    def value(self) -> BidSpec:
        """Return the value that the engine uses."""
        return BidSpec(max_usd_gpu_hour=self.max, step_usd_gpu_hour=self.step)


class RegistryTable(SpecTable):
    """`registry = { server = "ghcr.io", username = "me", password = { from_env = "GHCR_TOKEN" } }`."""

    server: Word = Field(description="Host of the private registry, such as ghcr.io.")
    username: Word = Field(description="User at the registry.")
    password: Password = Field(description="Secret: password or token of the user, or a reference to it.")

    def value(self) -> RegistrySpec:
        """Return the value that the engine uses."""
        return RegistrySpec(server=self.server, username=self.username, password=self.password)


class VolumeTable(SpecTable):
    """`volume = { mount = "/data", volume_id = "123" }`."""

    mount: Annotated[str, BeforeValidator(_mount)] = Field(description="Mount point on the instance.")
    volume_id: VolumeId = Field(
        description="The provider's id of an existing volume; with size_gb, of the volume offer for a new one."
    )
    size_gb: Annotated[Measure, Field(ge=1)] | None = Field(
        default=None, description="Size of a new volume in GB, on the machine of that volume offer."
    )

    def value(self) -> VolumeSpec:
        """Return the value that the engine uses."""
        return VolumeSpec(**self.fields_of(VolumeSpec))


class HookTable(SpecTable):
    """A shell command, or `{ url = "https://…", secret = "…" }`."""

    command: Annotated[str, BeforeValidator(shell_command)] | None = Field(
        default=None, repr=False, description="Shell command that receives the launch as JSON on standard input."
    )
    url: HookUrl | None = Field(default=None, description="URL that receives the launch as JSON, or a reference.")
    secret: Signature | None = Field(default=None, description="Secret that signs the message, or a reference.")

    @model_validator(mode="after")
    def _one_kind(self) -> HookTable:
        if (self.command is None) == (self.url is None):
            raise ValueError('expected a command in quotes, or { url = "https://…", secret = "…" }')
        if self.secret is not None and self.url is None:
            raise ValueError("expected secret only with url")
        return self

    def value(self) -> HookSpec:
        """Return the value that the engine uses."""
        return HookSpec(command=self.command, url=self.url, secret=self.secret)


Hook = Annotated[HookTable, BeforeValidator(_hook, json_schema_input_type=str | HookTable)]


class HandoverTable(SpecTable):
    """`handover = { to = "skypilot", run = "python train.py" }`."""

    to: Literal["skypilot", "dstack"] = Field(description="Orchestrator of the task.")
    run: Line = Field(description="Command to run on the machine.")

    def value(self) -> HandoverSpec:
        """Return the value that the engine uses."""
        return HandoverSpec(to=self.to, run=self.run)


class RelocateTable(SpecTable):
    """`relocate = { min_saving = "15%", after = "2h" }`."""

    min_saving: Share = Field(
        default=Decimal("0.15"), description="Minimum saving on the remaining cost, including set-up (default 15%)."
    )
    after: Span = Field(default=7200.0, description="Minimum runtime of a launch before it is reported (default 2h).")

    def value(self) -> RelocateSpec:
        """Return the value that the engine uses."""
        return RelocateSpec(min_saving=float(self.min_saving), after_s=self.after)


class LaunchTable(SpecTable):
    """`[watch.launch]`: what to rent and for how long."""

    image: Line = Field(
        default="vastai/pytorch", description="Container image. Default with a template: the template's."
    )
    template: Line | None = Field(default=None, description="Template of the provider, by hash or id.")
    onstart: Script | None = Field(
        default=None,
        repr=False,
        description="Shell commands to run when the instance starts; at most 4,000 characters.",
    )
    onstart_file: Line | None = Field(
        default=None, description="File with onstart; a relative path is relative to the settings file."
    )
    env: dict[EnvName, EnvValue] = Field(
        default_factory=dict,
        repr=False,
        description='Environment variables of the instance: text, { from_env = "NAME" } or { from_file = "path" }.',
    )
    ports: Ports = Field(default=(), description='Ports to open: 8000, "8080:8000" (outside:inside), "53/udp".')
    runtype: Literal["ssh", "ssh_direct", "ssh_proxy", "jupyter", "jupyter_direct", "jupyter_proxy", "args"] = Field(
        default="ssh",
        description='Connection: "ssh", "jupyter" (or with _direct, _proxy), "args"; a template sets its own.',
    )
    registry: RegistryTable | None = Field(default=None, description="Login for a private image registry.")
    volume: VolumeTable | None = Field(default=None, description="Volume to mount.")
    label_extra: Label | None = Field(
        default=None, description="Text appended to gpuwatch's label; printable ASCII; a label keeps 20 characters."
    )
    max_active: Whole = Field(default=1, ge=1, le=1000, description="Launches of this watch active at the same time.")
    max_total: Whole = Field(
        default=1, ge=0, le=1_000_000, description="Launches of this watch in total; 0: unlimited."
    )
    max_runtime: SpanFrom1s | None = Field(
        None, description="Runtime after which the instance is destroyed. Required while dry_run = false."
    )
    ready_within: SpanFrom1s = Field(
        900.0,
        description="Time to start; after that the instance is destroyed and the next offer tried (default 15m).",
    )
    max_tries: Whole = Field(
        default=5, ge=1, le=100, description="Maximum number of offers to try when the watch fires."
    )
    try_for: SpanFrom1s = Field(default=120.0, description="Maximum total time of these tries (default 2m).")
    quote_ttl: Span = Field(
        default=5.0,
        description="Maximum age of an answer that is not requoted before the order (default 5s).",
    )
    approve_within: SpanFrom1s = Field(
        default=900.0, description='How long a quote of action = "ask" can be approved (default 15m).'
    )
    bid: BidTable | None = Field(
        default=None, description='Bid for interruptible offers; requires spot "only" or "any".'
    )
    relaunch: Switch = Field(
        default=False,
        description="true: after a preemption, rent elsewhere instead of on the same machine; requires spot.",
    )
    self_destruct: Switch = Field(
        default=False,
        description="true: the instance ends itself at its deadline, even if gpuwatch is down; requires max_runtime.",
    )
    verify: Literal["none", "listed", "ssh"] = Field(
        default=VerificationMode.LISTED.value,
        description='Check before it counts as running: "none", "listed" (the provider\'s list), "ssh" (its SSH port).',
    )
    ssh_key: Line | None = Field(
        default=None, description='Private key file for verify = "ssh"; relative to the settings file.'
    )
    wasteful_below: Percent | None = Field(
        default=None, description="GPU utilisation in percent; below it, gpuwatch sends an alert."
    )
    wasteful_for: SpanFrom1s = Field(
        default=1800.0, description="Time below wasteful_below before the alert (default 30m)."
    )
    idle_below: Percent | None = Field(default=None, description="GPU utilisation in percent; requires idle_for.")
    idle_for: SpanFrom1s | None = Field(
        None, description="Time below idle_below after which the instance is destroyed."
    )
    stop_outside: Switch = Field(
        default=False, description="true: destroy the instance when the `active` windows close; requires active."
    )
    on_price_increase: Literal["alert", "stop", "accept_under"] = Field(
        default=PriceIncreasePolicy.ALERT.value,
        description='If the host raises the price: "alert", "stop", or "accept_under" (while at or under max_price).',
    )
    on_running: Hook | None = Field(
        default=None,
        description='Hook to run once it is running: "command", or { url = "https://…", secret = "…" }; receives JSON.',
    )
    before_stop: Hook | None = Field(
        default=None, description="Hook to run before it is destroyed; delays that by at most its timeout."
    )
    on_ended: Hook | None = Field(default=None, description="Hook to run after it has ended.")
    hook_timeout: HookSpan = Field(default=30.0, description="Timeout of a hook, 1s to 5m (default 30s).")

    @model_validator(mode="after")
    def _idle_pair(self) -> LaunchTable:
        if (self.idle_below is None) != (self.idle_for is None):
            raise ValueError("expected both idle_below and idle_for")
        return self

    def value(self) -> LaunchSpec:
        """Return the value that the engine uses."""
        by_template = {"image", "runtype"} - self.model_fields_set if self.template is not None else set()
        enums = {
            "verify": VerificationMode(self.verify),
            "on_price_increase": PriceIncreasePolicy(self.on_price_increase),
        }
        env = {
            "env": {name: value for name, value in self.env.items() if isinstance(value, str)},
            "secret_env": {name: value for name, value in self.env.items() if isinstance(value, Secret)},
        }
        return LaunchSpec(**self.fields_of(LaunchSpec) | dict.fromkeys(by_template, "") | enums | env)


class BudgetTable(SpecTable):
    """A budget. A launch that would exceed it is refused and reported."""

    max_usd_hour: Usd | None = Field(default=None, description="USD per hour for all instances together.")
    max_usd_day: Usd | None = Field(default=None, description="USD per day (UTC).")
    max_usd_month: Usd | None = Field(default=None, description="USD per month (UTC).")
    max_instances: Annotated[Whole, Field(ge=0, le=1_000_000)] | None = Field(
        default=None, description="Maximum number of active instances."
    )
    on_reached: Literal["warn", "stop"] = Field(
        default=BudgetPolicy.WARN.value,
        description='"warn": send an alert when it is reached; "stop": also end launches. Also alerts at 80 %.',
    )

    def value(self) -> Budget:
        """Return the value that the engine uses."""
        return Budget(**self.fields_of(Budget) | {"on_reached": BudgetPolicy(self.on_reached)})
