"""All wasted work of a trainer's dataflow window, each operation counted once."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from perfwrap.measures.data_loading.loaders import find_loaders
from perfwrap.measures.dataflow.broadcasts import find_broadcasts
from perfwrap.measures.dataflow.dataflow import Dataflow, find_dataflow, line_of
from perfwrap.measures.dataflow.full_sorts import find_full_sorts
from perfwrap.measures.dataflow.inspected_part import find_loop_share
from perfwrap.measures.dataflow.late_products import find_late_products
from perfwrap.measures.dataflow.live_operations import NOTHING_DEAD, find_dead
from perfwrap.measures.dataflow.needless_gradients import split_by_training
from perfwrap.measures.dataflow.parallel_layers import find_parallel_layers
from perfwrap.measures.dataflow.read_operations import find_read
from perfwrap.measures.dataflow.repeated_operations import find_repeated, find_repeated_backward
from perfwrap.measures.dataflow.small_loops import find_small_loops
from perfwrap.measures.dataflow.softmax_logs import find_softmax_logs
from perfwrap.measures.dataflow.unchanging_operations import find_unchanging
from perfwrap.measures.dataflow.unused_operations import find_partly_unused, find_unused
from perfwrap.measures.dataflow.waste import Waste, join_alike
from perfwrap.measures.dataflow.weight_casts import split_casts
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.model_loops import find_any_loop, find_model_loop
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.coverage import DATAFLOW, notes
from perfwrap.timeline.model import Timeline
from perfwrap.timeline.operation_window import BACKWARD, RECOMPUTE

UNCHANGING, REPEATED, UNUSED, LOOP = "unchanging", "repeated", "unused", "loop"
SOFTMAX, FROZEN, WEIGHTS, RECAST, BROADCAST = "softmax", "frozen", "weights", "recast", "broadcast"
SORT, LATE, METRICS = "sort", "late", "metrics"
KINDS = (UNCHANGING, REPEATED, UNUSED, FROZEN, WEIGHTS, RECAST, LOOP, BROADCAST, LATE, SORT, SOFTMAX, METRICS)
"""The kinds of waste; of two that need the same operations, the first has the stronger proof."""

MIN_SHARE = 0.01
"""Smaller wastes are dropped."""
NOT_RECORDED = ("no window: ", "window given up: ")
"""How the recorder's notes about missing windows begin."""


class WastedWork(Struct, frozen=True):
    """The wastes of one window by kind, largest first, and what they are shares of."""

    flow: Dataflow
    wastes: Mapping[str, tuple[Waste, ...]]
    loop_share: float
    """The share of the training loop that a step of the window is: waits and checkpoints may be outside of it."""
    recomputed_share: float = 0.0
    """The share of the step that activation checkpointing computes again, on purpose."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Why a kind was not looked for, as a sentence."""


def find_wasted_work(evidence: Evidence, trainer: Trainer) -> WastedWork | None:
    """Return the wasted work; None without a dataflow window."""
    flow = evidence.get(find_dataflow, trainer)
    if flow is None:
        return None
    loop_share = find_loop_share(evidence, trainer, flow)
    unknown: dict[str, str] = {}
    alive = find_dead(flow)
    if alive is None:
        why = "An optimizer reads gradients that no recorded operation made."
        unknown = dict.fromkeys((UNUSED, FROZEN, WEIGHTS, METRICS), why)
    dead = (alive or NOTHING_DEAD).operations
    unchanging, same = find_unchanging(flow, dead)
    recast, repeated = split_casts(flow, find_repeated(flow, dead, same))
    unused = find_unused(flow, alive or NOTHING_DEAD)
    frozen, weights = split_by_training(flow, [waste for waste in unused if waste.in_backward])
    partly = find_partly_unused(flow, dead)
    found = {
        UNCHANGING: unchanging,
        REPEATED: [*repeated, *find_repeated_backward(flow, dead)],
        UNUSED: [*(waste for waste in unused if not waste.in_backward), *partly],
        FROZEN: frozen,
        WEIGHTS: weights,
        RECAST: recast,
        LOOP: [
            _at_loop(evidence, trainer, flow, waste)
            for waste in (*find_small_loops(flow, same), *find_parallel_layers(flow))
        ],
        BROADCAST: join_alike(find_broadcasts(flow, same | dead)),
        LATE: find_late_products(flow, same | dead),
        SORT: find_full_sorts(flow, same | dead),
        SOFTMAX: find_softmax_logs(flow),
    }
    stronger = {
        number for kind in (UNCHANGING, REPEATED) for waste in found[kind] for number in waste.operations
    }
    has_loader = bool(evidence.get(find_loaders, trainer))
    found[METRICS] = find_read(flow, alive, stronger, has_loader) if alive else []
    recomputed = [
        number for number in flow.step if flow.has(number, RECOMPUTE) and flow.has(number, BACKWARD)
    ]
    return WastedWork(flow, _once(flow, found), loop_share, flow.share(recomputed), unknown)


def _at_loop(evidence: Evidence, trainer: Trainer, flow: Dataflow, waste: Waste) -> Waste:
    """Return a loop with the line in front that is inside of the loop in the source, if it calls the others."""
    functions = {(line.file, line.function) for line in waste.lines}
    find_loop = find_any_loop if waste.is_parallel or waste.in_recurrence else find_model_loop
    for frame in flow.stack(max(waste.operations, key=flow.cost)):
        line = line_of(frame)
        if not frame.is_installed and evidence.get(find_loop, trainer, line) is not None:
            is_named = (line.file, line.function) in functions
            return waste if is_named else replace(waste, lines=(line, *waste.lines))
    return waste


def why_no_window(evidence: Evidence, trainer: Trainer) -> str | None:
    """Return why there is no dataflow window, as a sentence; None if there is one."""
    if evidence.get(find_dataflow, trainer) is not None:
        return None
    if any(window.process == trainer.process for window in evidence.timeline.operation_windows):
        return "The recorded operations are those of another thread."
    return find_obstacle(evidence.timeline) or "Needs the operations of some steps; use `perfwrap inspect`."


def find_obstacle(timeline: Timeline) -> str:
    """Return why the operations that a run should have are missing, as a sentence; empty if it should have none."""
    said = notes(timeline, DATAFLOW)
    reasons = [note.partition(": ")[2] for note in said if note.startswith(NOT_RECORDED)]
    if len(reasons) < len(said):
        return "Operations were recorded, but their file cannot be read."
    return f"Operations were not recorded: {reasons[-1]}." if reasons else ""


def _once(flow: Dataflow, found: Mapping[str, list[Waste]]) -> dict[str, tuple[Waste, ...]]:
    """Return the wastes with each operation in one of them: the largest waste takes its operations first.

    Metrics come last: what makes their operations cheaper is worth more than to run them less often.
    """
    order = sorted(
        ((kind, waste) for kind in KINDS for waste in found[kind]),
        key=lambda each: (each[0] == METRICS, -each[1].share, KINDS.index(each[0])),
    )
    taken: set[int] = set()
    kept: dict[str, list[Waste]] = {kind: [] for kind in KINDS}
    for kind, waste in order:
        mine = [number for number in waste.operations if number not in taken]
        whole = flow.share(waste.operations)
        share = waste.share * flow.share(mine) / whole if whole else 0.0
        if share < MIN_SHARE:
            continue
        taken.update(mine)
        kept[kind].append(replace(waste, operations=tuple(mine), share=share))
    return {kind: tuple(wastes) for kind, wastes in kept.items()}
