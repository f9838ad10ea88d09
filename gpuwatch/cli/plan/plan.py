"""`gpuwatch plan`: what a job needs and costs. Each subcommand is one file, imported when it runs."""

from __future__ import annotations

import click

from gpuwatch.cli.base import Entry, LazyGroup

PLANS: dict[str, Entry] = {
    "models": ("List the models known by name, and their shapes.", "plan.plan_models:models"),
    "size": ("Compute a model's GPU memory, and the cards that hold it.", "plan.plan_size:size"),
    "job": ("Compute a job's total cost, on given cards or real offers.", "plan.plan_job:job"),
    "scenario": ("Compare workflows step by step, from a file.", "plan.plan_scenario:scenario"),
    "buy": ("Compare owning cards with renting: when does buying pay off?", "plan.plan_buy:buy"),
    "use": ("Compute the cost of a useful hour at a given utilisation.", "plan.plan_use:use"),
    "pilot": ("Extrapolate a whole job from a pilot on 1 % of the data.", "plan.plan_pilot:pilot"),
    "cases": ("Find the cheapest provider for each use case.", "plan.plan_cases:cases"),
    "hybrid": ("Train on one machine and infer on another, or both on one.", "plan.plan_cases:hybrid"),
    "fit": ("Find the cheapest GPU class for a task, by live prices.", "plan.plan_fit:fit"),
}


@click.group(
    cls=LazyGroup,
    sections={"Commands": PLANS},
    examples=(
        "gpuwatch plan size --params 70B --method qlora",
        "gpuwatch plan job --size-of 70B --method qlora --tokens 50M --poll",
    ),
)
def plan() -> None:
    """Estimate a job: memory, hours, cost; rent or buy; which GPU."""
