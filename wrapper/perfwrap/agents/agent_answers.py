"""Short answers for agents: what a run, an inspection, a trial and a fix came to, in a few hundred tokens.

They are made from the documents that the commands write (``diagnosis.json``, ``try.json``, ``fix.json``), which have
all details; an agent reads these as resources.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from perfwrap import units

MAX_FINDINGS, MAX_LINES, MAX_ROWS = 3, 8, 12
MAX_SENTENCE, MAX_PATCH, MAX_OUTPUT = 420, 6_000, 1_200
"""Characters."""

Document = dict[str, Any]


def of_run(name: str, diagnosis: Document, root: str) -> str:
    """Return verdict and most expensive findings of a run; paths below ``root`` are relative to it."""
    steps, run = diagnosis.get("steps") or {}, diagnosis.get("run") or {}
    findings = [one for one in diagnosis.get("findings") or () if one["advice"]]
    lines = [f"run {name}: {shortened(diagnosis['verdict']['sentence'])}"]
    median = f"median step {units.duration(steps.get('median_ns'), 3)}, " if steps.get("median_ns") else ""
    ending = _ending(run.get("exit"))
    lines.append(f"{median}{units.counted(steps.get('steady') or 0, 'steady step')}{ending}")
    for number, finding in enumerate(findings[:MAX_FINDINGS], 1):
        share = f", {units.share(finding['share'])}" if finding["share"] else ""
        place = _place(finding["location"], root)
        lines.append(f"{number}. {finding['rule']} ({finding['severity']}{share}){place}")
        lines.append(f"   Fix: {shortened(finding['advice'])}")
        gain = units.step_time(finding["saving"]["low"], finding["saving"]["high"])
        if gain:
            lines.append(f"   Predicted step time: {gain} of now")
        if finding.get("experiment"):
            lines.append(f"   try_changes: {finding['experiment']}")
    if len(findings) > MAX_FINDINGS:
        lines.append(f"{len(findings) - MAX_FINDINGS} more: resource perfwrap://runs/{name}/diagnosis.json")
    states = [one["state"] for one in (diagnosis.get("outcomes") or {}).values()]
    missing = sum(state in ("not checked", "failed") for state in states)
    if missing:
        lines.append(
            f"{units.counted(missing, 'rule')} not checked: no evidence, which is not the same as clear"
        )
    return "\n".join(lines)


def of_lines(diagnosis: Document, root: str) -> str:
    """Return the most expensive lines of a step that was inspected; empty without one."""
    account = diagnosis.get("line_account")
    if not account:
        return ""
    lines = [f"One step, {units.duration(account['step_ns'], 3)}, by line (with its backward):"]
    for one in account["lines"][:MAX_LINES]:
        place = _place(one, root).removeprefix(", ") if one.get("file") else "unknown line"
        parts = [part for part, share in (one.get("parts") or {}).items() if share >= 0.02]
        lines.append(f"{units.share(one['share'])} {place} ({', '.join(parts)})")
    return "\n".join(lines)


def of_trial(name: str, trial: Document) -> str:
    """Return what each change of a trial was measured to bring."""
    baseline = trial["baseline"]
    lines = [f"trial {name}: unchanged step {units.duration(baseline.get('median_ns'), 3)}"]
    for row in trial["variants"][:MAX_ROWS]:
        if row["ratio"] is not None:
            measured = f"step time {units.ratio(row['ratio'], row['low'], row['high'])} of now"
            lines.append(f"{row['name']}: {row['judgement']}, {measured}")
        else:
            lines.append(
                f"{row['name']}: {row['status']}. {shortened(row['reason'] or '')}".rstrip(". ") + "."
            )
        if row["judgement"] == "gain" and row.get("edit"):
            lines.append(shortened(row["edit"], 800))
    lines.append(f"best: {trial['best'] or 'none beyond the noise'}")
    return "\n".join(lines)


def of_fix(name: str, fix: Document) -> str:
    """Return the proven patch with what it was measured to bring, or why there is none."""
    kept = [row for row in fix["edits"] if row["state"] == "kept"]
    dropped = [row for row in fix["edits"] if row["state"] != "kept"]
    total = fix["total"]
    lines = []
    if fix["patch"] and total and total["ratio"] is not None:
        measured = units.ratio(total["ratio"], total["low"], total["high"])
        lines.append(f"Proven: step time {measured} of before (95 % interval). Results: {_equal(kept)}.")
    else:
        lines.append(f"No edit was proven (fix {name}).")
    lines += [
        f"kept: {PurePath(row['file']).name}:{row['line']} {shortened(row['sentence'], 200)}" for row in kept
    ]
    lines += [
        f"dropped: {PurePath(row['file']).name}:{row['line']} {row['rule']}: {shortened(row['reason'] or '', 200)}"
        for row in dropped[:MAX_ROWS]
    ]
    lines += [
        f"no edit for {row['rule']}: {shortened(row['reason'], 200)}"
        for row in fix["unedited"][:MAX_FINDINGS]
    ]
    if fix["patch"]:
        lines.append(
            f"Your files are unchanged. In {fix['root']}: patch -p1 < (this, or {name}/perfwrap.patch)"
        )
        lines.append(
            _cut(fix["patch"], MAX_PATCH, f"the rest: resource perfwrap://runs/{name}/perfwrap.patch")
        )
    return "\n".join(lines)


def of_output(text: str) -> str:
    """Return the end of what a command printed."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(lines)[-MAX_OUTPUT:]


def shortened(text: str, most: int = MAX_SENTENCE) -> str:
    """Return a text of at most ``most`` characters, cut at a word."""
    if len(text) <= most:
        return text
    return text[: most - 1].rpartition(" ")[0] + " …"


def _cut(text: str, most: int, rest: str) -> str:
    """Return the first lines of a text, and where the rest is."""
    if len(text) <= most:
        return text.rstrip("\n")
    return f"{text[:most].rpartition(chr(10))[0]}\n… {rest}"


def _equal(kept: Sequence[Document]) -> str:
    """Return how equal the results of the kept edits are, the least equal first."""
    return ", ".join(dict.fromkeys(row["equality"] for row in kept)) or "unknown"


def _place(location: Document | None, root: str) -> str:
    """Return e.g. ``, train.py:31`` or ``, a.ipynb cell [3] line 2``; empty without a line."""
    if not location or not location.get("file"):
        return ""
    path = PurePath(location["file"])
    file = path.relative_to(root) if root and path.is_relative_to(root) else path
    if location.get("cell"):
        return f", {file} cell [{location['cell']}] line {location['line']}"
    return f", {file}:{location['line']}"


def _ending(status: Document | None) -> str:
    """Return how the command ended, if not well."""
    if not status or status.get("code") == 0:
        return ""
    if "signal" in status:
        return f"; the command was ended by {status['signal']}"
    return f"; the command ended with exit code {status.get('code')}"
