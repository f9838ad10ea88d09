"""`gpuwatch plan`: what a job needs and costs. Each question is a file of its own, imported when it is asked."""

from __future__ import annotations

import click

from gpuwatch.cli import LazyGroup

# name → (one line of help, "module:command")
PLANS: dict[str, tuple[str, str]] = {
    "size": ("How much GPU memory a model wants, and which cards hold it.", "plan_size:size"),
    "job": ("What a job costs, all in: on cards you name, or on real offers.", "plan_job:job"),
    "scenario": ("Compare ways of working, step by step, from a file.", "plan_scenario:scenario"),
    "buy": ("Own cards or rented ones: when does buying pay?", "plan_buy:buy"),
    "use": ("What an hour of real work costs at a GPU's utilisation.", "plan_use:use"),
    "fit": ("The cheapest class of GPU that fits a task, by live prices.", "plan_fit:fit"),
}


class Plans(LazyGroup):
    """The questions, as the commands of `gpuwatch plan`."""

    table = PLANS


@click.group(cls=Plans)
def plan() -> None:
    """What a job needs and costs: memory, hours, money; rent or buy; which GPU."""
