"""The time of each optimizer's steps, and how it updates its tensors."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.account.lines import Line, line_of
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts
from perfwrap.measures.steps.steps import Steps, find_steps
from perfwrap.measures.trainers import Trainer

LENGTH = pl.col("end") - pl.col("start")


FIRST_FUSED_ON_CPU = (2, 4)
"""The torch version that introduced fused optimizers on a CPU."""


class Embeddings(Struct, frozen=True):
    """The large embeddings of an optimizer whose gradients contain all rows."""

    rows: int
    elements: int
    touched: float
    """The share of the elements whose rows had a gradient at the optimizer's first step."""


class OptimizerUse(Struct, frozen=True):
    """One optimizer; figures are for the steady loop, options are None if the recorder could not read them."""

    name: str
    """Its name in OPTIMIZER spans: ``AdamW#1``."""
    kind: str
    """Its class with module: ``torch.optim.adamw.AdamW``."""
    tensors: int | None
    """The number of tensors that it updates."""
    foreach: bool | None
    fused: bool | None
    where: Line | None
    """The line of most of its step time."""
    ns: int
    """Exclusive time in its steps, from the account."""
    ns_per_step: float
    share: float
    """``ns`` over the whole account."""
    elements: int | None = None
    """The number of elements of its tensors."""
    embeddings: Embeddings | None = None
    """The large embeddings among its tensors; None if it has none, or if this is unknown."""


def find_optimizers(evidence: Evidence, trainer: Trainer) -> tuple[OptimizerUse, ...]:
    """Return the optimizers that stepped in the steady loop, most time first."""
    account, steps = evidence.get(find_account, trainer), evidence.get(find_steps, trainer)
    facts = evidence.get(find_facts, trainer.process)
    rows = account.segments.filter(pl.col("operation") == "optimizer", pl.col("part") == "optimizer")
    if rows.is_empty():
        return ()
    lines = rows.group_by("name", "file", "line", "function").agg(LENGTH.sum().alias("ns"))
    lines = lines.with_columns(pl.col("ns").sum().over("name").alias("whole")).sort(
        ["whole", "name", "ns", "file", "line"], descending=[True, False, True, False, False], nulls_last=True
    )
    first = lines.unique("name", keep="first", maintain_order=True)
    return tuple(_use(row, account, steps, facts) for row in first.iter_rows(named=True))


def _use(row: Mapping[str, object], account: Account, steps: Steps, facts: Mapping[str, str]) -> OptimizerUse:
    """Return the figures of one optimizer."""
    name, ns = str(row["name"] or ""), int(str(row["whole"]))
    key = f"optimizer/{name}"
    line = row["line"]
    return OptimizerUse(
        name=name,
        kind=facts.get(f"{key}/class", ""),
        tensors=_whole(facts.get(f"{key}/parameters")),
        foreach=_flag(facts.get(f"{key}/foreach")),
        fused=_flag(facts.get(f"{key}/fused")),
        where=line_of(_text(row["file"]), line if isinstance(line, int) else None, _text(row["function"])),
        ns=ns,
        ns_per_step=ns / max(1, steps.steady),
        share=ns / max(1, account.total_ns),
        elements=_whole(facts.get(f"{key}/elements")),
        embeddings=_embeddings(facts, key),
    )


def _embeddings(facts: Mapping[str, str], key: str) -> Embeddings | None:
    """Return the recorded figures of an optimizer's embeddings."""
    rows, elements = (_whole(facts.get(f"{key}/embedding_{word}")) for word in ("rows", "elements"))
    touched = facts.get(f"{key}/embedding_touched", "").replace(".", "", 1)
    if rows is None or elements is None or not touched.isdecimal():
        return None
    return Embeddings(rows, elements, float(facts[f"{key}/embedding_touched"]))


def _whole(text: str | None) -> int | None:
    """Return the integer in a fact."""
    return int(text) if text is not None and text.isdecimal() else None


def _text(value: object) -> str | None:
    """Return a text of a row."""
    return value if isinstance(value, str) else None


def _flag(text: str | None) -> bool | None:
    """Return a recorded option, None if it was left to torch."""
    return {"True": True, "False": False}.get(text or "")
