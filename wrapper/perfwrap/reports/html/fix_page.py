"""What `perfwrap fix` proved, as one page without scripts: the gain, the step before and after, the edits, the diff."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from perfwrap import units
from perfwrap.fixing.candidates import MIN_GAIN
from perfwrap.fixing.equality import WORDS
from perfwrap.private_files import replace_text
from perfwrap.reports.html.encoding import clipped
from perfwrap.timeline.notebook_cells import at_line

STYLE = Path(__file__).with_name("assets") / "fix.css"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""The content security policy: no scripts, and nothing is downloaded."""
COLOURS = {
    "data": "#e69f00",
    "transfer": "#f0e442",
    "forward": "#0072b2",
    "backward": "#56b4e9",
    "recompute": "#44aa99",
    "optimizer": "#009e73",
    "sync": "#d55e00",
    "checkpoint": "#cc79a7",
    "validation": "#8f7ee7",
    "compile": "#a5673f",
    "gc": "#7f8c8d",
    "profiler": "#999933",
    "perfwrap": "#c0c6cc",
    "python": "#5b6b7b",
    "unknown": "#9aa5b1",
}
"""Those of the report (``assets/theme.js``)."""
CONTEXT_LINES = 3

Edited = tuple[str, str, str]
"""The name of a file, its text, and its edited text."""


def write(document: Mapping[str, Any], files: Sequence[Edited], path: Path) -> None:
    """Write the page for a document of ``fix_document`` and the files that it edits, in one step."""
    replace_text(path, page(document, files))


def page(document: Mapping[str, Any], files: Sequence[Edited]) -> str:
    """Return the whole page."""
    total = document["total"]
    title = (
        f"A step takes {_ratio(total)} of its time before"
        if total
        else "No edit is proven to make this program faster"
        if document["edits"]
        else "No edit could be made"
        if any(one["predicted"][0] <= 1 - MIN_GAIN for one in document["unedited"])
        else "Nothing to gain was found"
    )
    body = [
        f"<h1>{_safe(title)}</h1>",
        f"<p class=quiet><code>perfwrap fix -- {_safe(' '.join(document['command']))}</code></p>",
        *_accounts(document["account"]),
        *_edits(document["edits"]),
        *_unedited(document["unedited"], is_open=not total),
        *_files(files),
    ]
    return (
        '<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content="width=device-width, '
        f'initial-scale=1"><meta http-equiv=Content-Security-Policy content="{POLICY}"><title>perfwrap fix</title>'
        f"<style>{STYLE.read_text(encoding='utf-8')}</style></head><body><main>{''.join(body)}</main></body></html>\n"
    )


def _accounts(account: Mapping[str, Any]) -> Iterator[str]:
    """Return the bars of a step before and after, with the same scale."""
    rows = [(name, account[name]) for name in ("before", "after") if account[name]]
    if not rows:
        return
    longest = max(row["step_ns"] for _, row in rows)
    yield "<h2>Where the time of a step goes</h2>"
    for name, row in rows:
        width = 100 * row["step_ns"] / longest
        yield f"<div class=step><b>{name}</b> <span>{_safe(units.duration(row['step_ns'], 3))}</span></div>"
        yield f'<div class=bar style="width:{width:.2f}%">'
        for part, share in row["shares"].items():
            text = f"{part}: {units.duration(share * row['step_ns'], 3)}, {units.share(share)}"
            colour = COLOURS.get(part, COLOURS["unknown"])
            yield f'<i style="flex-grow:{share:.5f};background:{colour}" title="{_safe(text)}"></i>'
        yield "</div>"
    yield "<table class=parts><thead><tr><th>part</th>" + "".join(f"<th>{name}</th>" for name, _ in rows)
    yield "</tr></thead><tbody>"
    for part in [part for part in COLOURS if any(part in row["shares"] for _, row in rows)]:
        yield f'<tr><td><i class=swatch style="background:{COLOURS[part]}"></i>{part}</td>'
        for _, row in rows:
            spent = row["shares"].get(part)
            yield f"<td>{'' if spent is None else _safe(units.duration(spent * row['step_ns'], 3))}</td>"
        yield "</tr>"
    yield "</tbody></table>"


def _edits(rows: list[Mapping[str, Any]]) -> Iterator[str]:
    """Return what was tried: the change, the proof and the result of each edit."""
    if rows:
        yield "<h2>Edits</h2>"
    for row in rows:
        figures = [("results", WORDS[row["equality"]])]
        if row["deviation"]:
            figures.append(("largest deviation", units.number(row["deviation"], 2)))
        if row["ratio"] is not None:
            figures.append(("step time alone", _ratio(row)))
            low, high = row["predicted"]
            figures.append(("predicted", f"{units.ratio(low)} to {units.ratio(high)}"))
        if row["reason"]:
            figures.append(("why not", row["reason"]))
        where = at_line(Path(row["file"]).name, row["line"])
        yield f"<article class={row['state']}><p><b>{row['state']}</b> <span class=quiet>{_safe(where)}, "
        yield f"{_safe(row['rule'])}</span></p><p>{_safe(row['sentence'])}</p><dl>"
        yield "".join(f"<div><dt>{name}</dt><dd>{_safe(text)}</dd></div>" for name, text in figures)
        yield "</dl></article>"


def _unedited(rows: list[Mapping[str, Any]], is_open: bool) -> Iterator[str]:
    """Return the findings without an edit, at once visible if nothing else was gained."""
    if rows:
        yield f"<details{' open' if is_open else ''}><summary>Findings without an edit</summary><ul class=quiet>"
        yield "".join(f"<li>{_safe(row['sentence'])}</li>" for row in rows)
        yield "</ul></details>"


def _files(files: Sequence[Edited]) -> Iterator[str]:
    """Return each edited file side by side with the original."""
    for name, old, new in files:
        yield f"<h2>{_safe(name)}</h2><div class=diff><table>"
        yield from _sides(old.splitlines(), new.splitlines())
        yield "</table></div>"


def _sides(old: list[str], new: list[str]) -> Iterator[str]:
    """Return the changed places of a file with the lines around them, a row for each pair of lines."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for number, group in enumerate(matcher.get_grouped_opcodes(CONTEXT_LINES)):
        if number:
            yield "<tr class=gap><td colspan=4>…</td></tr>"
        for tag, old_begin, old_end, new_begin, new_end in group:
            for place in range(max(old_end - old_begin, new_end - new_begin)):
                left, right = old_begin + place, new_begin + place
                yield f"<tr class={tag}>"
                yield _side("old", left, old[left] if left < old_end else None)
                yield _side("new", right, new[right] if right < new_end else None) + "</tr>"


def _side(side: str, place: int, line: str | None) -> str:
    """Return the number and the text of a line; empty cells where the other side alone has one."""
    if line is None:
        return f'<td class="{side} at none"></td><td class="{side} none"></td>'
    return f'<td class="{side} at">{place + 1}</td><td class={side}><code>{_safe(line)}</code></td>'


def _ratio(row: Mapping[str, Any]) -> str:
    return units.ratio(row["ratio"], row["low"], row["high"])


def _safe(text: str) -> str:
    """Return a text for HTML, with what would make it look like another replaced."""
    return escape(clipped(text))
