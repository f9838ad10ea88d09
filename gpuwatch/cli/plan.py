"""`gpuwatch plan`: what a job needs and costs. Each question is a file of its own, imported when it is asked."""

from __future__ import annotations

import click

from gpuwatch.cli.command import Entry, LazyGroup

PLANS: dict[str, Entry] = {
    "models": ("The models that are known by name, and their shapes.", "plan_models:models"),
    "size": ("GPU memory a model needs, and the cards that hold it.", "plan_size:size"),
    "job": ("What a job costs in all, on cards you name or on real offers.", "plan_job:job"),
    "scenario": ("Compare ways of working step by step, from a file.", "plan_scenario:scenario"),
    "buy": ("Own cards or rented ones: when does buying pay off?", "plan_buy:buy"),
    "use": ("What an hour of real work costs at a GPU's utilisation.", "plan_use:use"),
    "pilot": ("The whole job, by what a run on 1 % of the data measured.", "plan_pilot:pilot"),
    "cases": ("Which provider for which case, by current offers.", "plan_cases:cases"),
    "hybrid": ("Train here, infer there: each part where it is cheapest.", "plan_cases:hybrid"),
    "fit": ("The cheapest class of GPU that fits a task, by live prices.", "plan_fit:fit"),
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
    """Estimate a job: memory, hours, money; rent or buy; which GPU."""
