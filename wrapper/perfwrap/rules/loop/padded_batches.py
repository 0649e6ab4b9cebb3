"""Sequences are padded beyond the longest of their batch.

What it finds
    Batches of tokens (integers, one row per sequence) of one fixed width that start or end with at least eight columns
    of padding in all rows, at least 10 % of the columns, for a model with embeddings whose class or function names
    suggest that it works on whole sequences (attention, GRU, transformer...).

Why it costs
    The model computes these columns like any others, but the results are masked and never used.

How the gain is estimated
    Measured on the host: the columns of up to 16 batches at the beginning and a few later ones. Estimated: their cost,
    as their part of the model's forward and backward pass (or of the GPU's work, if its kernels were recorded), times
    0.75 at least, because some work does not depend on the length, and times 1.5 at most, because attention grows with
    the square of the length. Two scripts gained 1.0 and 1.3 times as much.

How to fix
    Pad each batch to its longest sequence in the collate function: torch.nn.utils.rnn.pad_sequence, or in transformers
    DataCollatorWithPadding and no padding in the tokenizer. Batches of sequences of similar length need even less
    padding. With CUDA graphs, pad to the next multiple of 64, because each new length is captured again.

When it is wrong
    When the model skips padding itself: packed sequences, nested tensors and functions named unpad in the model's
    classes are recognized, other ways are not. When only part of the model works on the sequence, or the hardware needs
    one length. Not checked with torch.compile, because each new length may compile again.
"""

from __future__ import annotations

import re

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.lines import Line
from perfwrap.measures.account.loop_figures import trains_on_gpu
from perfwrap.measures.account.what_if import MOST
from perfwrap.measures.data_loading.loaders import find_loaders
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts
from perfwrap.measures.kernels.ordinary_step import find_ordinary_step
from perfwrap.measures.models import find_models
from perfwrap.measures.trainers import Trainer, find_trainers
from perfwrap.rules.kernel_record import recorded
from perfwrap.rules.model import (
    MINOR_SHARE,
    SHARE,
    Answer,
    Clear,
    Finding,
    NotChecked,
    Option,
    Scope,
    locate,
    place,
)

NEEDS = ("steady_steps", "options")

WORDS = re.compile(" ".join([r"(\d{1,18})"] * 8))
"""The recorder's figures: batches, columns, columns of padding only, numbers, padding numbers, the narrowest and the
widest batch, and how many batches held more than tokens."""


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    minor_share: float = MINOR_SHARE
    min_batches: int = 3
    """Recorded batches; with fewer, their padding says little about the others."""
    min_padding_share: float = 0.1
    """Share of the columns from which padding is reported."""
    max_share: float = 0.8
    """Maximum share of the loop, and of the gain: some work always remains."""
    min_saved: float = MOST
    max_saved: float = 1.5
    """Saved work over the share of the columns, at least and at most."""
    min_busy_share: float = 0.8
    """Busy share of the GPU from which less work makes steps shorter."""


CONCERNED = "forward", "backward"


class Padding(Struct, frozen=True):
    """The padding in the recorded batches of one model or loader, summed."""

    source: str
    batches: int
    columns: int
    empty_columns: int
    numbers: int
    padding: int
    narrowest: int
    widest: int
    beside: int

    @property
    def share(self) -> float:
        """Return the share of the columns that hold only padding."""
        return self.empty_columns / self.columns


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for columns of padding in the batches of tokens."""
    facts = evidence.get(find_facts, trainer.process)
    found = [seen for seen in _seen(evidence, trainer, facts) if seen.batches >= limits.min_batches]
    if not found:
        return Clear("No batches of padded tokens were found.")
    worst = max(found, key=lambda seen: seen.share)
    if worst.share < limits.min_padding_share or worst.narrowest != worst.widest:
        return Clear(f"{units.share(worst.share)} of the token columns hold only padding.")
    models = evidence.get(find_models, trainer)
    # A loader's batches may be for any of the models.
    concerned = [model for model in models if model.name == worst.source] or models
    if any(model.skips_padding for model in concerned):
        return Clear("Batches are padded, but the model skips padding.")
    if any(key.startswith("compile/") for key in facts):
        return NotChecked("Batches are padded, but the model is compiled; each new length may compile again.")
    if worst.beside or not any(model.mixes_positions for model in concerned):
        return NotChecked(
            "Batches are padded, but it is unknown how much of the model's work depends on their length."
        )
    answer = _work(evidence, trainer, worst.source, limits)
    if isinstance(answer, NotChecked):
        return answer
    work, of_window = answer
    share = worst.share * work
    if share < limits.minor_share:
        return Clear(f"Padding costs at most {units.share(share)} of the loop.")
    return [_finding(evidence, trainer, worst, work, of_window, limits)]


def _finding(
    evidence: Evidence, trainer: Trainer, seen: Padding, work: float, of_window: bool, limits: Limits
) -> Finding:
    """Return the finding; ``work`` is the share of the loop, or of a GPU record, that depends on the length."""
    share = min(limits.max_share, seen.share * work)
    whose, where = _maker(evidence, trainer)
    columns = seen.columns / seen.batches
    kept = (1.0 - seen.share) * columns
    whole = "the GPU's time" if of_window else "the training loop"
    return Finding(
        title=f"About {SHARE} of {whole} is spent on padding: {units.share(seen.share)} of the batch columns "
        "hold only padding.",
        share=share,
        evidence=(
            f"In {units.counted(seen.batches, 'recorded batch', 'recorded batches')}, rows are {columns:.0f} "
            f"numbers wide; the longest row of a batch has {kept:.0f}, an average row "
            f"{(1.0 - seen.padding / seen.numbers) * columns:.0f}.",
            f"Kernels run {units.share(work)} of the recorded GPU time."
            if of_window
            else f"Forward and backward pass of {seen.source} take {units.share(work)} of the loop.",
        ),
        options=(
            Option(
                f"Pad each batch to its longest sequence{whose} instead of to a fixed length.",
                (1.0 - min(limits.max_share, limits.max_saved * share), 1.0 - limits.min_saved * share),
                f"{units.share(seen.share)} of the columns hold only padding",
                details="Use torch.nn.utils.rnn.pad_sequence; in transformers DataCollatorWithPadding and no padding "
                "in the tokenizer. Grouping sequences of similar length saves more.",
            ),
        ),
        verdict=None if of_window else "compute-bound",
        location=locate(where),
        confidence="inferred",
        claims=None if of_window else pl.col("part").is_in([*CONCERNED]),
        scope=Scope.WINDOW if of_window else Scope.LOOP,
    )


def _work(
    evidence: Evidence, trainer: Trainer, source: str, limits: Limits
) -> tuple[float, bool] | NotChecked:
    """Return the share of the loop that depends on the sequence length, and whether it is of a GPU record."""
    if trains_on_gpu(evidence, trainer):
        gpu = recorded(evidence, trainer)
        if isinstance(gpu, NotChecked):
            return NotChecked("Batches are padded; the cost on a GPU needs a record of its kernels.")
        if sum(model.kind is not None for model in evidence.get(find_models, trainer)) != 1:
            return NotChecked(
                "Batches are padded, but it is unknown which of the models' work depends on their length."
            )
        step = evidence.get(find_ordinary_step, trainer)
        busy = step.busy_share if step else gpu.busy_share
        if busy < limits.min_busy_share:
            return NotChecked("Batches are padded, but the GPU does not limit the steps.")
        return busy, True
    if trainer.rank is not None and len(evidence.get(find_trainers)) > 1:
        return NotChecked(
            "Batches are padded; with several ranks, a backward pass also waits for other ranks."
        )
    if source.startswith("loader/"):
        return NotChecked("Batches are padded; the model's work on them was not recorded.")
    account = evidence.get(find_account, trainer)
    forward = account.share_of((pl.col("part") == "forward") & (pl.col("name") == source))
    whole = account.shares["forward"]
    return (forward + account.shares["backward"] * forward / whole if whole else 0.0), False


def _maker(evidence: Evidence, trainer: Trainer) -> tuple[str, Line | None]:
    """Return the collate function of the only loader that feeds the training, in words, and its line."""
    loaders = [loader for loader in evidence.get(find_loaders, trainer) if loader.training]
    if len(loaders) != 1:
        return "", None
    made = loaders[0].making
    line = made.collate_line if made else None
    return (f" in {place(line, '')}" if line else ""), line or loaders[0].created


def _seen(evidence: Evidence, trainer: Trainer, facts: dict[str, str]) -> list[Padding]:
    """Return the padding of the models' inputs, else of the training loaders' batches; only for embedding models."""
    models = {model.name for model in evidence.get(find_models, trainer) if model.embeds}
    if not models:
        return []
    padding = {}
    for key, value in facts.items():
        head, _, source = key.partition("/")
        if head == "padding" and (words := WORDS.fullmatch(value)):
            sums = [int(word) for word in words.groups()]
            if sums[1] and sums[3]:
                padding[source] = Padding(source, *sums)
    taken = [seen for source, seen in padding.items() if source in models]
    training = {loader.name for loader in evidence.get(find_loaders, trainer) if loader.training}
    return taken or [seen for source, seen in padding.items() if source in training]
