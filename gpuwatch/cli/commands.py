"""All commands: their groups, one line of help each, the file that holds each, and their former names."""

from __future__ import annotations

from gpuwatch.cli.base import Entry, GroupEntry

_WATCHES = GroupEntry(
    "List watches: price, limit, why not; pause, rehearse, tick off.",
    {
        "list": ("List the watches: state, price, limit, why they do not act.", "watches.watch_list:list_"),
        "pause": ("Stop renting until you resume.", "watches.pauses:pause"),
        "resume": ("Allow renting again.", "watches.pauses:resume"),
        "rehearse": ("Check everything a launch needs, without placing the order.", "watches.check:rehearse"),
        "checklist": ("Show or tick the items a watch requires before it rents.", "watches.checklist:checklist"),
        "handover": ("Print a watch's offer as a task of SkyPilot or dstack.", "watches.checklist:handover"),
        "take-over": ("Take over watches of another owner, with their launches.", "watches.take_over:take_over"),
    },
    ("gpuwatch watches", "gpuwatch watches h100-night", "gpuwatch watches pause --for 12h"),
)
_ALERTS = GroupEntry(
    "List recorded events; silence a watch; test the channels.",
    {
        "list": ("List recorded events: offers, launches, faults.", "alerts.alerts:alerts"),
        "silence": ("Mute the alerts of a watch for a while.", "alerts.alerts:silence"),
        "test": ("Send a test message through each channel.", "alerts.alerts:notify"),
    },
    ("gpuwatch alerts --since 7d --kind held --kind orphan", "gpuwatch alerts --follow --severity warning"),
)
_FORECASTS = GroupEntry(
    "Wait or buy; test for cheap hours; replay your watches.",
    {
        "advise": ("Wait or buy: the price to wait for before a deadline.", "forecasts.advise:advise"),
        "calendar": ("Test whether nights or weekends are cheaper.", "forecasts.calendar:calendar"),
        "backtest": ("Replay your watches over recorded prices.", "forecasts.backtest:backtest"),
        "scores": ("Show how accurate past forecasts were.", "forecasts.scores:scores"),
        "trend": ("Show how a GPU's rent changes over the years.", "forecasts.trend:trend"),
    },
    ("gpuwatch forecasts advise H100 --hours 24 --deadline 2d", "gpuwatch forecasts backtest"),
)
_LAUNCHES = GroupEntry(
    "Rent an offer now; list launches; log in, stop or extend one.",
    {
        "list": ("List launches with their state and cost.", "launches.launches:list_"),
        "rent": ("Rent one offer now, after a confirmation.", "launches.rent:rent"),
        "show": ("Show each state of a launch, with its cause and price.", "launches.launches:show"),
        "ssh": ("Log in to a running launch, or run a command there.", "launches.logins:ssh"),
        "stop": ("End a launch, or stop it with its disk kept.", "launches.launches:stop"),
        "start": ("Start a launch again whose disk was kept.", "launches.launches:start"),
        "extend": ("Extend the runtime of a launch, if the budgets allow it.", "launches.launches:extend"),
        "keep": ("End once what is overdue, if no daemon does.", "launches.keep:keep"),
        "adopt": ("Take over an instance that carries gpuwatch's label.", "launches.launches:adopt"),
        "resolve": ("Resolve a launch that is held.", "launches.launches:resolve"),
        "costs": ("Show spending, the current rate and the monthly forecast.", "launches.costs:costs"),
    },
    ("gpuwatch launches", "gpuwatch launches show k3f7q2mzt5ab"),
)
_APPROVALS = GroupEntry(
    "List quotes that await your approval; approve or deny one.",
    {
        "list": ("List quotes that await your approval.", "launches.approvals:asks"),
        "approve": ("Approve a quote: rent at its price or less.", "launches.approvals:approve"),
        "deny": ("Decline a quote; it is not offered again for a day.", "launches.approvals:deny"),
    },
    ("gpuwatch approvals", "gpuwatch approvals approve uoyauilxpk2f"),
)
_JOBS = GroupEntry(
    "Queue work that runs when an offer meets its limit.",
    {
        "list": ("List jobs, oldest first, with state, progress and cost.", "jobs.jobs:list_"),
        "series": ("List recurring jobs with their next run.", "jobs.job_series:series"),
        "new": ("Plan a job on current offers and write its file.", "jobs.job_new:new"),
        "submit": ("Queue the jobs of these files.", "jobs.jobs:submit"),
        "show": ("Show a job: its definition, its runs, and its events.", "jobs.jobs:show"),
        "logs": ("Show the output of a job's command.", "jobs.jobs:logs"),
        "results": ("List the result files of a job.", "jobs.jobs:results"),
        "cancel": ("Cancel a job and end its instance.", "jobs.jobs:cancel"),
        "retry": ("Queue a failed, cancelled or paused job again.", "jobs.jobs:retry"),
        "plan": ("Show which job would run when, and why.", "jobs.job_plan:plan"),
        "simulate": ("Replay a queue over recorded prices.", "jobs.job_plan:simulate"),
        "handover": ("Print a multi-node job as a task of SkyPilot or dstack.", "jobs.jobs:handover"),
    },
    ("gpuwatch jobs", "gpuwatch jobs submit jobs/qlora-8b.toml"),
)
_PLAN = GroupEntry(
    "Estimate a job: memory, hours, cost; rent or buy; which GPU.",
    {
        "models": ("List the models known by name, and their shapes.", "plan.plan_size:models"),
        "size": ("Compute a model's GPU memory, and the cards that hold it.", "plan.plan_size:size"),
        "job": ("Compute a job's total cost, on given cards or real offers.", "plan.plan_job:job"),
        "scenario": ("Compare workflows step by step, from a file.", "plan.plan_scenario:scenario"),
        "buy": ("Compare owning cards with renting: when does buying pay off?", "plan.plan_buy:buy"),
        "for": ("Rent, reserve, buy or use credits? By kind of owner.", "plan.plan_for:for_"),
        "use": ("Compute the cost of a useful hour; read own machines over SSH.", "plan.plan_use:use"),
        "parallel": ("Choose how several cards share a model, and write its files.", "plan.plan_parallel:parallel"),
        "pilot": ("Extrapolate a whole job from a pilot on 1 % of the data.", "plan.plan_scenario:pilot"),
        "cases": ("Find the cheapest provider for each use case.", "plan.plan_cases:cases"),
        "hybrid": ("Train on one machine and infer on another, or both on one.", "plan.plan_cases:hybrid"),
        "measure": (
            "Measure a model on this machine's GPU: speed, memory, latency.",
            "plan.plan_measure:measure_command",
        ),
        "card": ("Print a card's specification with sources, and what it is good for.", "plan.plan_card:card"),
        "fit": ("Find the cheapest GPU class for a task, by live prices.", "plan.plan_fit:fit"),
        "dataset": ("Find and remove duplicates in a training data set.", "gpuwatch.dataset.command:dataset"),
    },
    (
        "gpuwatch plan size --params 70B --method qlora",
        "gpuwatch plan job --size-of 70B --method qlora --tokens 50M --poll",
    ),
)
_PROVIDERS = GroupEntry(
    "List providers, accounts and machines; add a provider.",
    {
        "list": ("List providers: status, credentials, quota plan.", "market.providers:providers"),
        "accounts": ("List provider accounts and the launches active under each.", "market.providers:accounts"),
        "machines": ("List, block or allow machines.", "market.avoided_machines:machines"),
        "new": ("Generate a package for a new provider.", "market.providers:new_provider"),
        "emulator": ("Serve the embedded marketplace for your own tests.", "setup.demo:emulator"),
    },
    ("gpuwatch providers", "gpuwatch providers machines block 48211 --for 7d"),
)
_UPGRADE = ("Back up the database, and upgrade it to this version.", "setup.upgrade:upgrade")
_STORE = GroupEntry(
    "Import, export, upgrade, back up, prune or measure the store.",
    {
        "import": ("Load price files into the store.", "history.price_files:import_"),
        "export": ("Write the store's prices to a file.", "history.price_files:export"),
        "upgrade": _UPGRADE,
        "downgrade": ("Put back the database as it was before an upgrade.", "setup.upgrade:downgrade"),
        "backup": ("Copy the database while it is in use, and check the copy.", "setup.db:backup"),
        "prune": ("Delete what [history] keep no longer keeps, at once.", "setup.db:prune"),
        "stats": ("Show the size, contents and growth of the store.", "setup.db:stats"),
    },
    ("gpuwatch store stats", "gpuwatch store backup gpuwatch-backup.db"),
)
_HOSTS = GroupEntry(
    "List the daemons on one database; let another one lead.",
    {
        "list": ("List the daemons on this database, and which one leads.", "setup.hosts:hosts"),
        "step-down": ("Let another host lead.", "setup.hosts:step_down"),
    },
    ("gpuwatch hosts", "gpuwatch hosts step-down"),
)
_SERVICE = GroupEntry(
    "Run gpuwatch as a systemd service: install, status, uninstall.",
    {
        "install": ("Write a systemd unit for gpuwatch, and start it.", "setup.installed_service:install"),
        "status": ("Show whether the service runs, its version and last error.", "setup.installed_service:status"),
        "uninstall": ("Stop the service and remove its unit.", "setup.installed_service:uninstall"),
    },
    ("gpuwatch service install", "gpuwatch service status"),
)
_CONFIG = GroupEntry(
    "Show settings, their JSON Schema, or shell completion.",
    {
        "show": ("Show every effective setting and where it comes from.", "setup.config:show"),
        "schema": ("Print the JSON Schema of gpuwatch.toml, for editors.", "setup.config:schema"),
        "completion": ("Print the completion script for your shell.", "setup.help_commands:completion"),
    },
    ("gpuwatch config show", "gpuwatch config schema > gpuwatch.schema.json"),
)
# heading of --help → name → command; the order is the order of --help
SECTIONS: dict[str, dict[str, Entry | GroupEntry]] = {
    "Watch": {
        "check": ("Poll once: which watches are at or under their threshold.", "watches.check:check"),
        "status": ("One screen: what needs you, what runs, what it costs.", "setup.status:status"),
        "run": ("Run the daemon: poll, alert, rent.", "setup.run_daemon:run"),
        "web": ("Serve the web page and the HTTP API.", "setup.run_daemon:web"),
        "watches": _WATCHES,
        "alerts": _ALERTS,
    },
    "Market": {
        "offers": ("List the offers on sale now, cheapest GPU first.", "market.offers:offers"),
        "market": ("Summarise each GPU: price now, changes, rank in its history.", "market.market:market"),
        "history": ("Show the price of a GPU over time.", "history.price_history:history"),
        "forecasts": _FORECASTS,
        "providers": _PROVIDERS,
    },
    "Rent": {
        "launches": _LAUNCHES,
        "approvals": _APPROVALS,
        "jobs": _JOBS,
        "plan": _PLAN,
    },
    "Setup": {
        "init": ("Set up gpuwatch: five questions, then gpuwatch.toml.", "setup.init:init"),
        "doctor": ("Check settings, database, keys, channels and clock.", "setup.config:doctor"),
        "config": _CONFIG,
        "service": _SERVICE,
        "upgrade": _UPGRADE,
        "store": _STORE,
        "hosts": _HOSTS,
        "share": ("Make a link to a chart, the alerts or the calendar.", "setup.share:share"),
        "mcp": ("Serve tools for agents (MCP) over standard input.", "setup.mcp:mcp"),
        "demo": ("Run the daemon against an embedded marketplace.", "setup.demo:demo"),
        "docs": ("Read the documentation.", "setup.help_commands:docs"),
    },
}
# short name, hidden in the same way → what it stands for
SHORT_NAMES: dict[str, tuple[str, ...]] = {
    "keep": ("launches", "keep"),
    "rent": ("launches", "rent"),
    "ssh": ("launches", "ssh"),
    "use": ("plan", "use"),
}
# former name, hidden from --help and from completion → what is typed today; listed in docs/commands.md
ALIASES: dict[str, tuple[str, ...]] = {
    "accounts": ("providers", "accounts"),
    "adopt": ("launches", "adopt"),
    "advise": ("forecasts", "advise"),
    "approve": ("approvals", "approve"),
    "asks": ("approvals", "list"),
    "backtest": ("forecasts", "backtest"),
    "calendar": ("forecasts", "calendar"),
    "checklist": ("watches", "checklist"),
    "completion": ("config", "completion"),
    "costs": ("launches", "costs"),
    "dataset": ("plan", "dataset"),
    "db": ("store",),
    "deny": ("approvals", "deny"),
    "emulator": ("providers", "emulator"),
    "export": ("store", "export"),
    "extend": ("launches", "extend"),
    "handover": ("watches", "handover"),
    "import": ("store", "import"),
    "job": ("jobs",),
    "machines": ("providers", "machines"),
    "new-provider": ("providers", "new"),
    "notify": ("alerts", "test"),
    "pause": ("watches", "pause"),
    "rehearse": ("watches", "rehearse"),
    "resume": ("watches", "resume"),
    "scores": ("forecasts", "scores"),
    "silence": ("alerts", "silence"),
    "stop": ("launches", "stop"),
}
