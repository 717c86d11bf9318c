"""What a browser without scripts would send for a form of a page."""

from __future__ import annotations

from html.parser import HTMLParser


class _Forms(HTMLParser):
    """Collects the successful controls of each form, in the order of the page."""

    def __init__(self, form: str) -> None:
        super().__init__(convert_charrefs=True)
        self._form = form
        self._inside = False
        self._text: list[str] | None = None
        self._name = ""
        self._select: str | None = None
        self._options: list[tuple[str, bool]] = []
        self.found: dict[str, list[str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._inside = given.get("id") == self._form or (not self._form and "action" in given)
        if not self._inside:
            return
        if tag == "input" and given.get("name"):
            ticked = given.get("type") not in {"checkbox", "radio"} or "checked" in given
            if ticked:
                self._add(given["name"], given.get("value", "on"))
        elif tag == "textarea":
            self._name, self._text = given["name"], []
        elif tag == "select":
            self._select, self._options = given["name"], []
        elif tag == "option" and self._select is not None:
            self._options.append((given.get("value", ""), "selected" in given))

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._inside = False
        elif tag == "textarea" and self._text is not None:
            # HTML drops a line end right after the tag.
            self._add(self._name, "".join(self._text).removeprefix("\n"))
            self._text = None
        elif tag == "select" and self._select is not None:
            chosen = [value for value, selected in self._options if selected] or [self._options[0][0]]
            self._add(self._select, chosen[-1])
            self._select = None

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)

    def _add(self, name: str, value: str) -> None:
        self.found.setdefault(name, []).append(value)


def fields_of(page: str, form: str) -> dict[str, list[str]]:
    """Return the fields of the form with an id, by name, as the browser would send them untouched."""
    parser = _Forms(form)
    parser.feed(page)
    return parser.found
