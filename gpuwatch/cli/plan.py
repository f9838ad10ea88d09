"""`gpuwatch plan`: what a job needs and costs. Each question is a file of its own, imported when it is asked."""

from __future__ import annotations

import importlib

import click

# name → (one line of help, "module:command")
PLANS: dict[str, tuple[str, str]] = {
    "size": ("How much GPU memory a model wants, and which cards hold it.", "plan_size:size"),
    "job": ("What a job costs, all in: on cards you name, or on real offers.", "plan_job:job"),
    "scenario": ("Compare ways of working, step by step, from a file.", "plan_scenario:scenario"),
    "buy": ("Own cards or rented ones: when does buying pay?", "plan_buy:buy"),
    "use": ("What an hour of real work costs at a GPU's utilisation.", "plan_use:use"),
    "fit": ("The cheapest class of GPU that fits a task, by live prices.", "plan_fit:fit"),
}


class LazyPlans(click.Group):
    """Knows each question's help without importing it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(PLANS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in PLANS:
            return None
        module, _, attribute = PLANS[cmd_name][1].partition(":")
        command: click.Command = getattr(importlib.import_module(f"gpuwatch.cli.{module}"), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (text, _) in PLANS.items()])


@click.group(cls=LazyPlans)
def plan() -> None:
    """What a job needs and costs: memory, hours, money; rent or buy; which GPU."""
