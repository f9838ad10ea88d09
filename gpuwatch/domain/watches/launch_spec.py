"""What to rent and for how long: `[watch.launch]`, its tables, and the budgets. Pure."""

from __future__ import annotations

import re
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BeforeValidator, Field, GetPydanticSchema, PlainValidator, WithJsonSchema

from gpuwatch.domain.setup.fields import (
    TEXT_OR_REFERENCE,
    Key,
    Line,
    Measure,
    Number,
    Share,
    Span,
    SpanFrom1s,
    Spec,
    Switch,
    Usd,
    Whole,
    about,
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
    switch_or_auto,
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
    if not isinstance(value, (dict, HookSpec)):
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


class VerificationMode(StrEnum):
    """How to check a new instance against its offer before it counts as running."""

    NONE = "none"
    LISTED = "listed"  # the provider's list: GPU, count, memory, disk, CUDA
    SSH = "ssh"  # and the SSH port answers; with min_download_mbps: the speed is measured


class PriceIncreasePolicy(StrEnum):
    """What to do when a host proposes a higher price for a running contract."""

    ALERT = "alert"
    STOP = "stop"
    ACCEPT_UNDER = "accept_under"  # accepted while at or under max_price, else as `stop`


class BudgetPolicy(StrEnum):
    """What to do when running launches reach a budget. You get an alert at 80 % in any case."""

    WARN = "warn"
    STOP = "stop"


class EndPolicy(StrEnum):
    """What happens when a launch reaches its `max_runtime`, or is idle."""

    DESTROY = "destroy"
    STOP = "stop"  # its disk is kept for `keep_disk_for`, where the provider can


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
SelfDestructMode = Annotated[bool | Literal["auto"], BeforeValidator(switch_or_auto)]
Label = Annotated[str, BeforeValidator(_label), WithJsonSchema({"type": "string", "maxLength": LABEL_EXTRA_MAX})]
Script = Annotated[str, BeforeValidator(_script), WithJsonSchema({"type": "string", "maxLength": MAX_ONSTART})]


_Runtypes = Literal["ssh", "ssh_direct", "ssh_proxy", "jupyter", "jupyter_direct", "jupyter_proxy", "args"]
Runtype = Annotated[str, GetPydanticSchema(lambda _, handler: handler(_Runtypes))]  # empty: that of the template


class BidSpec(Spec, frozen=True, kw_only=True):
    """`bid = { max = 1.20, step = 0.05 }`: both in USD per GPU-hour with commission, like `max_price`."""

    max_usd_gpu_hour: Annotated[Usd, about("Maximum bid in USD per GPU-hour, commission included."), Key("max")]
    step_usd_gpu_hour: Annotated[
        Usd, about("Increment of a bid after it was outbid, in USD per GPU-hour."), Key("step")
    ] = Decimal("0.05")

    @classmethod
    def computed(cls, table: Any) -> dict[str, Any]:
        """A step that is written is at most the maximum."""
        if table.step > table.max and "step" in table.model_fields_set:
            raise ValueError("expected step to be at most max")
        return {}


class RegistrySpec(Spec, frozen=True, kw_only=True):
    """`registry = { server = "ghcr.io", username = "me", password = { from_env = "GHCR_TOKEN" } }`."""

    server: Annotated[Word, about("Host of the private registry, such as ghcr.io.")]
    username: Annotated[Word, about("User at the registry.")]
    password: Annotated[Password, about("Secret: password or token of the user, or a reference to it.")]

    def __repr__(self) -> str:
        return f"RegistrySpec({self.server!r}, {self.username!r})"


class VolumeSpec(Spec, frozen=True, kw_only=True):
    """`volume = { mount = "/data", volume_id = "123" }`; with `size_gb`, a new volume of the volume offer."""

    mount: Annotated[str, BeforeValidator(_mount), about("Mount point on the instance.")]
    volume_id: Annotated[
        VolumeId, about("The provider's id of an existing volume; with size_gb, of the volume offer for a new one.")
    ]
    size_gb: Annotated[
        Annotated[Measure, Field(ge=1)] | None,
        about("Size of a new volume in GB, on the machine of that volume offer."),
    ] = None


class HookSpec(Spec, frozen=True, kw_only=True):
    """A hook of the owner, which receives the launch as JSON: a shell command, or a webhook signed with `secret`."""

    command: Annotated[
        Annotated[str, BeforeValidator(shell_command)] | None,
        about("Shell command that receives the launch as JSON on standard input."),
    ] = None
    url: Annotated[HookUrl | None, about("URL that receives the launch as JSON, or a reference.")] = (
        None  # its path is often a token
    )
    secret: Annotated[Signature | None, about("Secret that signs the message, or a reference.")] = None

    def __repr__(self) -> str:
        return f"HookSpec({'command' if self.command else 'url'})"

    @classmethod
    def computed(cls, table: Any) -> dict[str, Any]:
        """One kind of hook; a secret signs the messages to an address."""
        if (table.command is None) == (table.url is None):
            raise ValueError('expected a command in quotes, or { url = "https://…", secret = "…" }')
        if table.secret is not None and table.url is None:
            raise ValueError("expected secret only with url")
        return {}


Hook = Annotated[HookSpec, BeforeValidator(_hook, json_schema_input_type=str | HookSpec)]


class HandoverSpec(Spec, frozen=True, kw_only=True):
    """`handover = { to = "skypilot", run = "python train.py" }`: the task file for a command."""

    to: Annotated[Literal["skypilot", "dstack"], about("Orchestrator of the task.")]
    run: Annotated[Line, about("Command to run on the machine.")]


class RelocateSpec(Spec, frozen=True, kw_only=True):
    """`relocate = { min_saving = "15%", after = "2h" }`: when a cheaper offer is reported for a running launch."""

    min_saving: Annotated[Share, about("Minimum saving on the remaining cost, including set-up (default 15%).")] = 0.15
    after_s: Annotated[Span, about("Minimum runtime of a launch before it is reported (default 2h).")] = 7200.0


class JobRelocateSpec(RelocateSpec, frozen=True, kw_only=True, gc=False):
    """`relocate = "move"` of a job: whether it continues on a cheaper machine, or only reports it."""

    action: Annotated[Literal["alert", "move"], about('"alert": report a cheaper machine; "move": continue there.')] = (
        "alert"
    )
    min_saving: Annotated[
        Share, about("Minimum saving on the remaining cost, after all that the move costs (default 15%).")
    ] = 0.15
    after_s: Annotated[Span, about("Minimum runtime on a machine before its job leaves it (default 2h).")] = 7200.0
    max_per_day: Annotated[Whole, about("Moves of the job within 24 hours.", ge=1, le=100)] = 3


def _relocate(value: Any) -> Any:
    return {"action": value} if isinstance(value, str) else value


JobRelocate = Annotated[
    JobRelocateSpec, BeforeValidator(_relocate, json_schema_input_type=Literal["alert", "move"] | JobRelocateSpec)
]


class LaunchKeys:
    """Keys of `[watch.launch]` that `LaunchSpec` holds by other fields."""

    onstart_file: Annotated[
        Line | None, about("File with onstart; a relative path is relative to the settings file.")
    ] = None
    env: Annotated[
        dict[EnvName, EnvValue],
        about('Environment variables of the instance: text, { from_env = "NAME" } or { from_file = "path" }.'),
    ] = {}  # noqa: RUF012 never changed


class LaunchSpec(Spec, frozen=True, kw_only=True, gc=False):
    """`[watch.launch]`: what to rent and for how long."""

    Keys = LaunchKeys

    image: Annotated[Line, about("Container image. Default with a template: the template's.")] = "vastai/pytorch"
    template: Annotated[Line | None, about("Template of the provider, by hash or id.")] = None
    onstart: Annotated[
        Script | None, about("Shell commands to run when the instance starts; at most 4,000 characters.")
    ] = None
    env: dict[str, str] = msgspec.field(default_factory=dict)  # may contain secrets
    secret_env: dict[str, Secret] = msgspec.field(default_factory=dict)  # the variables that were given by reference
    ports: Annotated[Ports, about('Ports to open: 8000, "8080:8000" (outside:inside), "53/udp".')] = ()
    runtype: Annotated[
        Runtype,
        about('Connection: "ssh", "jupyter" (or with _direct, _proxy), "args"; a template sets its own.'),
    ] = "ssh"
    registry: Annotated[RegistrySpec | None, about("Login for a private image registry.")] = None
    volume: Annotated[VolumeSpec | None, about("Volume to mount.")] = None
    label_extra: Annotated[
        Label | None, about("Text appended to gpuwatch's label; printable ASCII; a label keeps 20 characters.")
    ] = None
    max_active: Annotated[Whole, about("Launches of this watch active at the same time.", ge=1, le=1000)] = 1
    max_total: Annotated[Whole, about("Launches of this watch in total; 0: unlimited.", ge=0, le=1000000)] = 1
    max_runtime_s: Annotated[
        SpanFrom1s | None, about("Runtime after which the instance is destroyed. Required while dry_run = false.")
    ] = None
    ready_within_s: Annotated[
        SpanFrom1s, about("Time to start; after that the instance is destroyed and the next offer tried (default 15m).")
    ] = 900.0
    max_tries: Annotated[Whole, about("Maximum number of offers to try when the watch fires.", ge=1, le=100)] = 5
    try_for_s: Annotated[SpanFrom1s, about("Maximum total time of these tries (default 2m).")] = 120.0
    quote_ttl_s: Annotated[
        Span, about("Maximum age of an answer that is not requoted before the order (default 5s).")
    ] = 5.0
    approve_within_s: Annotated[
        SpanFrom1s, about('How long a quote of action = "ask" can be approved (default 15m).')
    ] = 900.0
    bid: Annotated[BidSpec | None, about('Bid for interruptible offers; requires a `spot` other than "no".')] = None
    relaunch: Annotated[
        Switch, about("true: after a preemption, rent elsewhere instead of on the same machine; requires spot.")
    ] = False
    self_destruct: Annotated[
        SelfDestructMode,
        about('true: it ends itself at max_runtime, even without gpuwatch. "auto": only where `extend` can move that.'),
    ] = False
    verify: Annotated[
        VerificationMode,
        about('Check before it counts as running: "none", "listed" (the provider\'s list), "ssh" (its SSH port).'),
    ] = VerificationMode.LISTED
    ssh_key: Annotated[Line | None, about('Private key file for verify = "ssh"; relative to the settings file.')] = None
    wasteful_below: Annotated[
        Percent | None, about("GPU utilisation in percent; below it, gpuwatch sends an alert.")
    ] = None
    wasteful_for_s: Annotated[SpanFrom1s, about("Time below wasteful_below before the alert (default 30m).")] = 1800.0
    idle_below: Annotated[Percent | None, about("GPU utilisation in percent; requires idle_for.")] = None
    idle_for_s: Annotated[SpanFrom1s | None, about("Time below idle_below after which the instance is destroyed.")] = (
        None
    )
    stop_outside: Annotated[
        Switch, about("true: destroy the instance when the `active` windows close; requires active.")
    ] = False
    on_price_increase: Annotated[
        PriceIncreasePolicy,
        about('If the host raises the price: "alert", "stop", or "accept_under" (while at or under max_price).'),
    ] = PriceIncreasePolicy.ALERT
    on_running: Annotated[
        Hook | None,
        about('Hook to run once it is running: "command", or { url = "https://…", secret = "…" }; receives JSON.'),
    ] = None
    before_stop: Annotated[
        Hook | None, about("Hook to run before it is destroyed; delays that by at most its timeout.")
    ] = None
    on_ended: Annotated[Hook | None, about("Hook to run after it has ended.")] = None
    hook_timeout_s: Annotated[HookSpan, about("Timeout of a hook, 1s to 5m (default 30s).")] = 30.0

    def ends_itself(self, is_movable: bool) -> bool:
        """Whether an instance ends itself at a provider that can move that time, or cannot."""
        return is_movable if self.self_destruct == "auto" else self.self_destruct

    def __repr__(self) -> str:
        return f"LaunchSpec({self.image!r}, max_runtime_s={self.max_runtime_s!r})"

    @classmethod
    def computed(cls, table: Any) -> dict[str, Any]:
        """Variables by their kind; with a template, its own image and connection where the launch has none."""
        if (table.idle_below is None) != (table.idle_for is None):
            raise ValueError("expected both idle_below and idle_for")
        env = {name: value for name, value in table.env.items() if isinstance(value, str)}
        secret_env = {name: value for name, value in table.env.items() if isinstance(value, Secret)}
        by_template = {"image", "runtype"} - table.model_fields_set if table.template is not None else ()
        return {"env": env, "secret_env": secret_env} | dict.fromkeys(by_template, "")


class Budget(Spec, frozen=True, kw_only=True, gc=False):
    """A budget. A launch that would exceed it is refused and reported."""

    max_usd_hour: Annotated[Usd | None, about("USD per hour for all instances together.")] = None
    max_usd_day: Annotated[Usd | None, about("USD per day (UTC).")] = None
    max_usd_month: Annotated[Usd | None, about("USD per month (UTC).")] = None
    max_instances: Annotated[
        Annotated[Whole, Field(ge=0, le=1000000)] | None, about("Maximum number of active instances.")
    ] = None
    on_reached: Annotated[
        BudgetPolicy, about('"warn": send an alert when it is reached; "stop": also end launches. Also alerts at 80 %.')
    ] = BudgetPolicy.WARN

    @property
    def limits_money(self) -> bool:
        """Whether it limits more than the number of instances."""
        return any(one is not None for one in (self.max_usd_hour, self.max_usd_day, self.max_usd_month))
