"""What the steps of each optimizer took, and how it goes through its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from perfwrap.measures.account import Account
from perfwrap.measures.lines import Line, line_of
from perfwrap.measures.steps import Steps

LENGTH = pl.col("end") - pl.col("start")


@dataclass(frozen=True)
class Embeddings:
    """The large embeddings of an optimizer whose gradients hold all of their rows."""

    rows: int
    elements: int
    touched: float
    """The share of the elements whose rows had a gradient at the optimizer's first step."""


@dataclass(frozen=True)
class OptimizerUse:
    """One optimizer; figures are of the steady loop, options are None where the recorder could not read them."""

    name: str
    """As OPTIMIZER spans name it: ``AdamW#1``."""
    kind: str
    """Its class with the module: ``torch.optim.adamw.AdamW``."""
    tensors: int | None
    """How many tensors it updates."""
    foreach: bool | None
    fused: bool | None
    where: Line | None
    """The line that steps it most of the time."""
    ns: int
    """Exclusive time in its steps, as the account has it."""
    ns_per_step: float
    share: float
    """``ns`` over the whole account."""
    elements: int | None = None
    """How many elements its tensors have."""
    embeddings: Embeddings | None = None
    """The large embeddings among its tensors; None where it has none, or nobody could look."""


def find_optimizers(account: Account, steps: Steps, facts: Mapping[str, str]) -> tuple[OptimizerUse, ...]:
    """Return the optimizers that stepped in the steady loop, most time first."""
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
    """Return what was seen of an optimizer's embeddings."""
    rows, elements = (_whole(facts.get(f"{key}/embedding_{word}")) for word in ("rows", "elements"))
    touched = facts.get(f"{key}/embedding_touched", "").replace(".", "", 1)
    if rows is None or elements is None or not touched.isdigit():
        return None
    return Embeddings(rows, elements, float(facts[f"{key}/embedding_touched"]))


def _whole(text: str | None) -> int | None:
    """Return a whole number that a fact holds."""
    return int(text) if text is not None and text.isdigit() else None


def _text(value: object) -> str | None:
    """Return a text of a row."""
    return value if isinstance(value, str) else None


def _flag(text: str | None) -> bool | None:
    """Return an option that was said, None where it was left to torch."""
    return {"True": True, "False": False}.get(text or "")
