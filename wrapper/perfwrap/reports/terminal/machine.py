"""The GPUs during the steady steps, for a terminal: a line for each GPU that was monitored."""

from __future__ import annotations

from perfwrap import units
from perfwrap.diagnosis.model import Diagnosis, Gpu
from perfwrap.reports.terminal.page import Page

MAX_GPUS = 16
"""More GPUs are only counted."""
COLUMNS = {"sm": "SMs", "tensor": "tensor", "fp32": "FP32", "fp64": "FP64", "dram": "DRAM"}
"""Units with a column, if some GPU reports them."""
SELDOM = ("fp64",)
"""Units without a column if they are not used."""
DUTY_CYCLE = "`busy` is the share of the time in which at least one kernel ran, however small. "
KNOWN = "The columns right of it show the share of each unit in use."
UNKNOWN = "These GPUs do not report the use of their units; NVIDIA GPUs from Hopper on do."


def draw_machine(diagnosis: Diagnosis, page: Page) -> None:
    """Draw a table of the GPUs, and what is unusual about each; nothing if none was monitored."""
    gpus = [gpu for gpu in diagnosis.gpus if gpu.utilization is not None or gpu.activity]
    if not gpus:
        return
    page.blank()
    period = "the steady steps" if diagnosis.account else "the whole run"
    page.line((page.clipped(f"GPUs, mean over {period}: {_names(gpus)}", page.width), "bold"))
    shown = gpus[:MAX_GPUS]
    for row in _table(shown):
        page.line((page.clipped(row, page.width - 2), ""), indent=2)
    for sentence in [*_slowed(gpus), *_shared(gpus)]:
        page.paragraph(sentence, indent=2, hanging="- ")
    if len(gpus) > len(shown):
        page.line((f"and {units.counted(len(gpus) - len(shown), 'more GPU')}", "dim"), indent=2)
    page.paragraph(
        DUTY_CYCLE + (KNOWN if any(gpu.activity for gpu in gpus) else UNKNOWN), style="dim", indent=2
    )


def _names(gpus: list[Gpu]) -> str:
    """Return e.g. ``8 x NVIDIA H100``."""
    kinds = [gpu.name.rpartition(" (")[0] for gpu in gpus]
    return ", ".join(f"{units.count(kinds.count(kind))} x {kind}" for kind in dict.fromkeys(kinds))


def _table(gpus: list[Gpu]) -> list[str]:
    """Return the heading and a row for each GPU, as lines of equal columns."""
    present = [
        unit
        for unit in COLUMNS
        if any(gpu.activity.get(unit) is not None for gpu in gpus)
        and (unit not in SELDOM or any(gpu.activity.get(unit, 0.0) >= 0.01 for gpu in gpus))
    ]
    rows = [["", "busy", *(COLUMNS[unit] for unit in present), "power", "memory"]]
    for gpu in gpus:
        activity = [_share(gpu.activity.get(unit)) for unit in present]
        rows.append([_entity(gpu), _share(gpu.utilization), *activity, _power(gpu), _memory(gpu)])
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width) for place, (cell, width) in pairs
        ).rstrip()
        for pairs in (list(enumerate(zip(row, widths, strict=True))) for row in rows)
    ]


def _slowed(gpus: list[Gpu]) -> list[str]:
    """Return why GPUs lowered their clocks, a sentence for each set of reasons."""
    groups: dict[tuple[str, ...], list[Gpu]] = {}
    for gpu in gpus:
        if gpu.throttle_reasons:
            groups.setdefault(gpu.throttle_reasons, []).append(gpu)
    sentences = []
    for reasons, group in groups.items():
        share = units.share(max(gpu.throttled_share or 0.0 for gpu in group))
        often = share if len(group) == 1 else f"up to {share}"
        words = ", ".join(reason.replace("_", " ") for reason in reasons)
        sentences.append(f"{_joined(group)}: clocks lowered {often} of the time ({words}).")
    return sentences


def _shared(gpus: list[Gpu]) -> list[str]:
    """Return which GPUs other jobs used, and how much of their memory."""
    group = [gpu for gpu in gpus if gpu.other_processes]
    if not group:
        return []
    held = sum(gpu.other_memory_used_bytes or 0.0 for gpu in group)
    memory = f", with {units.size(held)} of memory" if held else ""
    return [f"Processes of other users or jobs also used {_joined(group)}{memory}."]


def _joined(gpus: list[Gpu]) -> str:
    """Return e.g. ``gpu/0, gpu/3``."""
    return ", ".join(_entity(gpu) for gpu in gpus)


def _entity(gpu: Gpu) -> str:
    return gpu.name.rpartition(" (")[2].removesuffix(")")


def _share(value: float | None) -> str:
    return "-" if value is None else units.share(value)


def _power(gpu: Gpu) -> str:
    """Return the power and its limit."""
    if gpu.power_watts is None:
        return "-"
    limit = f" of {units.number(gpu.power_limit_watts, 3)}" if gpu.power_limit_watts else ""
    return f"{units.number(gpu.power_watts)}{limit} W"


def _memory(gpu: Gpu) -> str:
    """Return the memory in use and in total."""
    if gpu.memory_used_bytes is None:
        return "-"
    total = f" of {units.size(gpu.memory_total_bytes)}" if gpu.memory_total_bytes else ""
    return f"{units.size(gpu.memory_used_bytes)}{total}"
