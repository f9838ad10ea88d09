"""What `/start` and `/help` answer: what this bot is, and what can be typed. Pure."""

from __future__ import annotations

from gpuwatch.chat.chat_actions import COMMANDS
from gpuwatch.chat.replies import ChatReply, plain_line
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.watches.owner_names import plain_name
from gpuwatch.language import translate_composed
from gpuwatch.notifiers.toolkit import Line, Piece, Role
from gpuwatch.settings import Settings

_MOST_NAMED = 5


def help_reply() -> ChatReply:
    """Return the list of commands."""
    return ChatReply(lines=(_title(translate_composed("gpuwatch in this chat")), *_command_lines()))


def start_reply(settings: Settings) -> ChatReply:
    """Return what the bot is for, and the list of commands."""
    names = [plain_name(watch.name) for watch in settings.watches]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    named = f": {', '.join(names[:_MOST_NAMED])}{more}" if names else ""
    renting = "It rents nothing: dry_run is true." if settings.dry_run else "It may rent, within your budgets."
    about = f"It watches GPU markets for you ({count_text(len(names), 'watch', 'watches')}{named}). {renting}"
    lines = (_title(translate_composed("This is gpuwatch; its alerts come to this chat")), plain_line(about))
    return ChatReply(lines=(*lines, *_command_lines()))


def foreign_start_text(chat_id: int) -> str:
    """Return what somebody reads whose chat the settings do not name. It tells them nothing but their own id."""
    return translate_composed(
        f"This is somebody's gpuwatch, and it does not know this chat. If it is yours: set chat_id = {chat_id} in"
        " [notify.telegram] of gpuwatch.toml, or run gpuwatch init."
    )


def _title(text: str) -> Line:
    return Line(Role.TITLE, (Piece(text, bold=True),))


def _command_lines() -> list[Line]:
    return [
        Line(Role.ITEM, (Piece(f"/{name}", code=True), Piece(f" – {translate_composed(command.about)}")))
        for name, command in COMMANDS.items()
    ]
