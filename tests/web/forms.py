"""The form of a page as a browser without JavaScript sends it: its fields, and what they hold."""

from __future__ import annotations

from html.parser import HTMLParser


class _Fields(HTMLParser):
    def __init__(self, action: str) -> None:
        super().__init__()
        self.values: dict[str, str] = {}
        self._action, self._inside = action, False
        self._area = self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        have = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._inside = have.get("action") == self._action
        name = have.get("name", "")
        if self._inside and tag == "select":
            self._select = name
        elif self._inside and tag == "option" and ("selected" in have or self._select not in self.values):
            self.values[self._select] = have.get("value", "")
        elif self._inside and tag == "textarea":
            self._area, self.values[name] = name, ""
        elif self._inside and tag == "input" and name:
            is_unchecked = have.get("type") in {"checkbox", "radio"} and "checked" not in have
            self.values |= {} if is_unchecked else {name: have.get("value", "")}

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._inside = False
        elif tag == "textarea":
            self._area = ""

    def handle_data(self, data: str) -> None:
        if self._area:
            self.values[self._area] += data


def form_fields(page: str, action: str) -> dict[str, str]:
    """The fields of the form that posts to this address."""
    fields = _Fields(action)
    fields.feed(page)
    assert fields.values, f"no form posts to {action}"
    return fields.values
