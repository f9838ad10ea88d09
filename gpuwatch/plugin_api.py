"""What a package with a provider or an alert channel imports from gpuwatch; docs/write-a-provider.md shows both.

    from gpuwatch.plugin_api import Adapter, ApiClient, Offer, OfferTerms, ProviderInfo

Each name is documented where it is defined. `__all__` lists them by use; the conformance kit is `gpuwatch.testing`.
Units are in the names: `usd_hour` is US dollars per hour for the whole offer, `_gib` and `_gb` are memory and disk,
`_s` is seconds. Times are aware, in UTC. A module of gpuwatch may move in any version; these names stay.
"""

from __future__ import annotations

from gpuwatch.domain.alerts.alert import event_json
from gpuwatch.domain.market.gpu_cards import gpu_fraction
from gpuwatch.domain.market.gpu_names import GpuName, catalog
from gpuwatch.domain.market.money import HOURS_A_MONTH, Commission, CommissionMode
from gpuwatch.domain.market.offer import Offer, OfferKind, OfferTerms, Verification, clean, clean_word
from gpuwatch.errors import (
    DeliverLater,
    DeliveryError,
    DeliveryRefused,
    GpuwatchError,
    KeyRejected,
    NoRowUnderstood,
    OfferGone,
    OrderError,
    OrderRateLimited,
    OrderRefused,
    OutcomeUnknown,
    PayloadChanged,
    ProviderDown,
    ProviderError,
    ProviderUnreachable,
    QuotaSpent,
    RateLimited,
    RefusalKind,
    RefusalScope,
)
from gpuwatch.notifiers.toolkit import (
    CHECK_S,
    TEMPLATES,
    Line,
    Piece,
    Role,
    as_text,
    check_findings,
    cleaned,
    custom_text,
    finish_delivery,
    footer,
    lines,
    pending_recipients,
    plain,
    recipient_key,
    subject,
)
from gpuwatch.ports import (
    AccountLookup,
    Alert,
    AlertKind,
    Answer,
    BatchingChannel,
    Channel,
    ChannelSettings,
    Completeness,
    Created,
    DiskKeeper,
    EndMover,
    Instance,
    InstanceLookup,
    InstanceState,
    Launcher,
    ManyRecipients,
    Market,
    MovableChannel,
    OfferLine,
    OneByOneChannel,
    Order,
    PriceIncrease,
    ProviderCharge,
    ProviderSettings,
    Query,
    Registry,
    Severity,
    SilentChannel,
    Volume,
)
from gpuwatch.ports.declarations import (
    Adapter,
    Billing,
    ChannelInfo,
    OptionSpec,
    ProviderInfo,
    SelfDestruct,
    Tools,
    web_address,
)
from gpuwatch.ports.dialog import ChannelAnswers, ChannelSetup, Dialog
from gpuwatch.ports.findings import Finding
from gpuwatch.ports.http import HttpClient, HttpReply, NetError, NoReply, NotSent, StreamingReply, UnusableReply
from gpuwatch.ports.market import SelfChecking
from gpuwatch.ports.prerequisites import (
    OrderCheck,
    OrderValidation,
    Prerequisite,
    PrerequisiteName,
    PrerequisiteProbe,
    PrerequisiteSpec,
    declared,
)
from gpuwatch.ports.settings import Option, parse_line, parse_list, parse_password, parse_token, parse_url
from gpuwatch.providers.toolkit.api_client import ApiClient, PacedClient, TtlCache
from gpuwatch.providers.toolkit.basic_launcher import (
    BasicLauncher,
    created_instance,
    decoded_order,
    host_name,
    id_and_status,
    instance_rows,
    label_among,
    machine_fields,
    match_offer_id,
    not_sent,
    one_instance,
    public_key_prerequisite,
    refuse,
    refuse_beyond_machine,
    require_ssh_key,
    ssh_key_prerequisite,
)
from gpuwatch.providers.toolkit.catalogue import CatalogueMarket, query_all, read_types
from gpuwatch.providers.toolkit.error_mapping import (
    ErrorBody,
    InstanceGone,
    InstanceNotFound,
    NoSuchObject,
    display_sentence,
    ordering_error,
    reading_error,
)
from gpuwatch.providers.toolkit.first_boot import first_boot_script, shutdown_timer, with_end
from gpuwatch.providers.toolkit.instance_status import ReadStatus, StatusWords
from gpuwatch.providers.toolkit.list_prices import RowCountGuard, is_plausible, without_placeholders
from gpuwatch.providers.toolkit.machine_cloud import UUID, ListPage, MachineCloud
from gpuwatch.providers.toolkit.machine_type import MachineType, fields_of_instance
from gpuwatch.providers.toolkit.post_processing import (
    ParseResult,
    RowSkipped,
    build_answer,
    if_readable,
    short_id,
    stated,
    unknown_name,
)
from gpuwatch.providers.toolkit.validation import (
    UNREADABLE,
    at,
    decode_json,
    matched,
    number,
    objects,
    parse_utc,
    require_complete_list,
    time_from_unix,
    usd_hour,
    whole,
    word,
)
from gpuwatch.redaction import redact, register_secret

__all__ = [  # noqa: RUF022 - by use
    # What a package declares as `INFO`, and what `build` gets and returns
    "ProviderInfo",
    "ChannelInfo",
    "OptionSpec",  # one key of the settings
    "Option",  # its value
    "Commission",  # how a listed price becomes an effective one
    "CommissionMode",
    "Billing",  # minimum and steps of billed time, in seconds
    "SelfDestruct",  # how a machine ends itself there
    "ProviderSettings",  # one `[providers.NAME]`, with the key
    "ChannelSettings",  # one `[notify.NAME]`
    "Tools",  # HTTP client, clock, waits
    "Adapter",  # a provider, ready for requests
    "Finding",  # one line of `gpuwatch doctor`
    # For `OptionSpec.parse` and `check`
    "parse_line",
    "parse_list",
    "parse_password",
    "parse_token",
    "parse_url",
    "web_address",
    # Searching: a query, its answer, the offers
    "Market",
    "SelfChecking",  # a market with lines for `doctor`
    "Query",
    "Answer",
    "Completeness",
    "Offer",
    "OfferKind",  # live, or only a list price
    "OfferTerms",
    "Verification",  # of a host
    "catalog",  # GPU names: any spelling to gpuwatch's own
    "GpuName",
    "gpu_fraction",  # of a GPU that is sold in slices: 0.5
    "HOURS_A_MONTH",  # for prices per month
    "CatalogueMarket",  # a market whose whole catalogue is one answer
    "read_types",
    "MachineType",  # a type of machine that many places sell
    "ParseResult",  # the parsed offers and the skipped rows
    "RowSkipped",
    "stated",  # the value of a field, or RowSkipped
    "if_readable",
    "unknown_name",
    "short_id",
    "build_answer",
    "is_plausible",  # list prices that are placeholders
    "without_placeholders",
    "RowCountGuard",  # an answer with far too few rows
    # Reading untrusted data: None for values that are rejected
    "UNREADABLE",  # the errors of decoding
    "decode_json",
    "at",  # the value at a path of keys
    "objects",
    "require_complete_list",
    "number",
    "whole",
    "usd_hour",
    "word",
    "matched",  # a text of one form
    "parse_utc",
    "time_from_unix",
    "clean",
    "clean_word",
    # Requests
    "ApiClient",  # address, key, rate limit, retries
    "PacedClient",  # its base, for a vendor's SDK
    "TtlCache",
    "query_all",  # several places in parallel
    "HttpClient",
    "HttpReply",
    "StreamingReply",
    "NetError",
    "NotSent",
    "NoReply",
    "UnusableReply",
    "ErrorBody",  # the error in an answer, for functions of your own
    "reading_error",
    "ordering_error",
    "display_sentence",
    "redact",
    "register_secret",  # a secret that is not in the settings
    # Renting
    "Launcher",
    "InstanceLookup",  # a launcher with `get`
    "AccountLookup",  # … with `account_id`
    "DiskKeeper",  # … with `stop_instance` and `start_instance`
    "EndMover",  # … with `move_end`
    "Order",
    "Registry",
    "Volume",
    "Created",
    "Instance",
    "InstanceState",
    "PriceIncrease",
    "ProviderCharge",  # what was billed for one instance on one day
    "BasicLauncher",  # for a provider that only rents, lists and ends
    "MachineCloud",  # for a cloud that lists machine types and creates machines: its market and its launcher
    "ListPage",  # of a list with several pages
    "machine_fields",
    "label_among",
    "host_name",
    "UUID",  # the usual form of an instance's id
    "InstanceGone",
    "InstanceNotFound",
    "NoSuchObject",
    "match_offer_id",
    "refuse",
    "refuse_beyond_machine",
    "not_sent",
    "require_ssh_key",
    "decoded_order",
    "created_instance",
    "instance_rows",
    "one_instance",
    "id_and_status",
    "fields_of_instance",
    "StatusWords",  # status words of the vendor → states
    "ReadStatus",
    "first_boot_script",  # start commands and environment of a virtual machine
    "shutdown_timer",
    "with_end",
    # Before the first rent, for `gpuwatch watches rehearse`
    "OrderCheck",
    "OrderValidation",
    "PrerequisiteProbe",
    "Prerequisite",
    "PrerequisiteName",
    "PrerequisiteSpec",
    "declared",
    "ssh_key_prerequisite",
    "public_key_prerequisite",
    # Alerts: what a channel gets, and their text
    "Channel",
    "SilentChannel",
    "ChannelSetup",  # what `gpuwatch init` asks for it
    "ChannelAnswers",
    "Dialog",
    "ManyRecipients",
    "BatchingChannel",
    "OneByOneChannel",
    "MovableChannel",
    "Alert",
    "AlertKind",
    "OfferLine",
    "Severity",
    "subject",  # one line
    "as_text",
    "event_json",  # an alert for programs
    "lines",  # an alert as lines of pieces, for a layout of your own
    "footer",
    "Line",
    "Piece",
    "Role",
    "plain",
    "cleaned",
    "TEMPLATES",  # the option for the owner's own texts
    "custom_text",
    "recipient_key",
    "pending_recipients",
    "finish_delivery",
    "check_findings",
    "CHECK_S",  # longest time of a channel's check, in seconds
    # Errors: the class says what happens next
    "GpuwatchError",
    "ProviderError",
    "ProviderDown",
    "ProviderUnreachable",
    "RateLimited",
    "QuotaSpent",
    "KeyRejected",
    "PayloadChanged",
    "NoRowUnderstood",
    "OrderError",
    "OfferGone",
    "OrderRefused",
    "OrderRateLimited",
    "OutcomeUnknown",
    "RefusalKind",
    "RefusalScope",
    "DeliveryError",
    "DeliverLater",
    "DeliveryRefused",
]
