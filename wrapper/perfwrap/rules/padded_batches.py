"""Sequences are padded further than the longest of their batch.

What it finds
    Batches of tokens (whole numbers, a row for each sequence) of one fixed width that end or begin with eight columns
    or more of padding in all rows: a tenth of the columns or more, of a model that looks up embeddings and whose
    classes or functions are named as those that work on whole sequences are (attention, GRU, transformer...).

Why it costs
    The model works those columns out like any others. Nobody uses what comes out: it is masked.

How the saving is worked out
    Measured are the columns of up to 16 batches in the beginning and a few later ones, on the host. Estimated is what
    they cost: their part of the model's forward and backward pass (of a GPU's work, where its kernels were recorded),
    0.7 times as much at least, since some work is the same for any length, and 1.3 times at most, since that of
    attention grows with the square of the length. Two scripts gained 1.0 and 1.3 times as much.

How to fix
    Pad each batch to its longest sequence in the collate function: torch.nn.utils.rnn.pad_sequence, or in transformers
    DataCollatorWithPadding and no padding in the tokenizer. Batches of sequences of similar length have less
    padding still. With CUDA graphs, pad to the next multiple of 64: each new length is captured anew.

When it is wrong
    When the model leaves the padding out by itself: packed sequences, nested tensors and functions named unpad in the
    model's classes are noticed, other ways are not. Where only a part of the model works on the sequence, or the
    hardware needs one length. Where torch.compile is used it is not checked: each other length may compile anew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.lines import Line
from perfwrap.measures.loop import trains_on_gpu
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import recorded
from perfwrap.rules.model import MINOR_SHARE, SHARE, Answer, Clear, Finding, NotChecked, locate, place

NEEDS = ("steady_steps", "options")

WORDS = re.compile(" ".join([r"(\d{1,18})"] * 8))
"""What the recorder says: batches, columns, those of padding only, numbers, those that are padding, the narrowest
and the widest batch, and how many batches held more than tokens."""

LEAST_BATCHES = 3
LEAST_EMPTY = 0.1
"""Part of the columns from which it is told."""
MOST_SHARE = 0.8
"""Of the loop, and of what goes at most: something is always left to do."""
LEAST_GONE, MOST_GONE = 0.7, 1.3
"""Of the work by the part of the columns: what goes at least and at most."""
BUSY = 0.8
"""Share of a record in which the GPU's kernels run, from which less work for it makes steps shorter."""
CONCERNED = "forward", "backward"


@dataclass(frozen=True)
class Padding:
    """What was seen of the batches of one model or loader, summed over those that were looked at."""

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
        """Return the part of the columns that hold nothing but padding."""
        return self.empty_columns / self.columns


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for columns of padding in the batches of tokens."""
    facts = evidence.facts(trainer.process)
    found = [seen for seen in _seen(evidence, trainer, facts) if seen.batches >= LEAST_BATCHES]
    if not found:
        return Clear("No batches of padded tokens were seen.")
    worst = max(found, key=lambda seen: seen.share)
    if worst.share < LEAST_EMPTY or worst.narrowest != worst.widest:
        return Clear(f"{units.share(worst.share)} of the columns of tokens hold nothing but padding.")
    if _says(facts, worst.source, "skips_padding"):
        return Clear("Batches are padded, and the model leaves padding out.")
    if any(key.startswith("compile/") for key in facts):
        return NotChecked(
            "Batches are padded, but the model is compiled: each other length may compile anew."
        )
    if worst.beside or not _says(facts, worst.source, "mixes_positions"):
        return NotChecked(
            "Batches are padded, but how much of the model's work goes by their length is not known."
        )
    answer = _work(evidence, trainer, worst.source)
    if isinstance(answer, NotChecked):
        return answer
    work, of_window = answer
    share = worst.share * work
    if share < MINOR_SHARE:
        return Clear(f"What the model makes of padding takes {units.share(share)} of the loop at most.")
    return [_finding(evidence, trainer, worst, work, of_window)]


def _says(facts: dict[str, str], source: str, what: str) -> bool:
    """Say whether that is known of a model, of any model where a loader stands for them."""
    keys = [f"model/{source}/{what}"] if f"model/{source}/{what}" in facts else list(facts)
    return any(facts[key] == "True" for key in keys if key.startswith("model/") and key.endswith("/" + what))


def _finding(evidence: Evidence, trainer: Trainer, seen: Padding, work: float, of_window: bool) -> Finding:
    """Return the finding; ``work`` is the share of the loop, or of a GPU's record, that goes by the length."""
    share = min(MOST_SHARE, seen.share * work)
    whose, where = _maker(evidence, trainer)
    columns = seen.columns / seen.batches
    kept = (1.0 - seen.share) * columns
    whole = "the GPU's time" if of_window else "the training loop"
    return Finding(
        title=f"About {SHARE} of {whole} goes into padding: {units.share(seen.share)} of the columns of the batches "
        "hold nothing else.",
        share=share,
        saving=(1.0 - min(MOST_SHARE, MOST_GONE * share), 1.0 - LEAST_GONE * share),
        evidence=(
            f"In {units.counted(seen.batches, 'batch', 'batches')} that were looked at, rows were {columns:.0f} "
            f"numbers wide; the longest row of a batch held {kept:.0f}, an average row "
            f"{(1.0 - seen.padding / seen.numbers) * columns:.0f}.",
            f"Kernels run during {units.share(work)} of what was recorded of the GPU."
            if of_window
            else f"Forward and backward pass of {seen.source} take {units.share(work)} of the loop.",
        ),
        advice=f"Pad each batch to its longest sequence{whose} instead of to a fixed length "
        "(torch.nn.utils.rnn.pad_sequence; in transformers DataCollatorWithPadding, and no padding in the "
        "tokenizer). Batches of sequences of similar length save more.",
        verdict=None if of_window else "compute-bound",
        location=locate(where),
        confidence="inferred",
        claims=None if of_window else pl.col("part").is_in([*CONCERNED]),
        of_window=of_window,
    )


def _work(evidence: Evidence, trainer: Trainer, source: str) -> tuple[float, bool] | NotChecked:
    """Return the share of the loop that goes by the length of sequences, and whether it is of a GPU's record."""
    if trains_on_gpu(evidence, trainer):
        gpu = recorded(evidence, trainer)
        if isinstance(gpu, NotChecked):
            return NotChecked("Batches are padded; what that costs on a GPU needs a record of its kernels.")
        if len(_models(evidence.facts(trainer.process), "class")) != 1:
            return NotChecked(
                "Batches are padded; which of the models' work goes by their length is not known."
            )
        if gpu.busy_share < BUSY:
            return NotChecked("Batches are padded, but the GPU is not what steps wait for.")
        return gpu.busy_share, True
    if trainer.rank is not None and len(evidence.trainers) > 1:
        return NotChecked(
            "Batches are padded; in a job of several ranks a backward pass also waits for others."
        )
    if source.startswith("loader/"):
        return NotChecked("Batches are padded; how much of that the model takes was not seen.")
    account = evidence.account(trainer)
    forward = account.share_of((pl.col("part") == "forward") & (pl.col("name") == source))
    whole = account.shares["forward"]
    return (forward + account.shares["backward"] * forward / whole if whole else 0.0), False


def _models(facts: dict[str, str], what: str) -> set[str]:
    """Return the names of the models of which the recorder said that."""
    return {key.split("/")[1] for key in facts if key.startswith("model/") and key.endswith("/" + what)}


def _maker(evidence: Evidence, trainer: Trainer) -> tuple[str, Line | None]:
    """Return the collate function of the only loader that feeds the training, in words, and its line."""
    loaders = [loader for loader in evidence.loaders(trainer) if loader.training]
    if len(loaders) != 1:
        return "", None
    made = loaders[0].making
    line = made.collate_line if made else None
    return (f" in {place(line, '')}" if line else ""), line or loaders[0].created


def _seen(evidence: Evidence, trainer: Trainer, facts: dict[str, str]) -> list[Padding]:
    """Return what models took, else what the loaders gave that the training took: models that look up embeddings."""
    models = _models(facts, "embeds")
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
    training = {loader.name for loader in evidence.loaders(trainer) if loader.training}
    return taken or [seen for source, seen in padding.items() if source in training]
