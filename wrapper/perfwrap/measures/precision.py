"""Which 16-bit types the models compute in, and whether the processor has instructions for them."""

from __future__ import annotations

from msgspec import Struct

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_host_facts
from perfwrap.measures.models import Model, find_models
from perfwrap.measures.trainers import Trainer

FLOAT16, BFLOAT16, FLOAT32 = "torch.float16", "torch.bfloat16", "torch.float32"
HALF = (FLOAT16, BFLOAT16)

MAIN_SHARE = 0.5
"""Share of the elements from which the models compute in a type."""

INSTRUCTIONS = {
    FLOAT16: frozenset(("avx512_fp16", "amx_fp16", "asimdhp")),
    BFLOAT16: frozenset(("avx512_bf16", "amx_bf16", "bf16")),
}
"""The processor's features that compute in each type, as Linux names them."""


class HalfPrecision(Struct, frozen=True):
    """The 16-bit type in which most of the models' elements are computed, by autocast or because they have it."""

    kind: str
    by_autocast: bool
    models: tuple[Model, ...]
    share: float
    """The share of the elements of all models."""


def find_half_precision(evidence: Evidence, trainer: Trainer) -> HalfPrecision | None:
    """Return the 16-bit type that most elements of the models are computed in; None if most have more bits.

    Autocast that a model switches on by itself, inside of its forward pass, is not recorded.
    """
    models = evidence.get(find_models, trainer)
    total = sum(sum(model.elements.values()) for model in models)
    found = [
        HalfPrecision(
            kind,
            by_autocast,
            tuple(model for model in models if _elements(model, kind, by_autocast)),
            sum(_elements(model, kind, by_autocast) for model in models) / max(1, total),
        )
        for kind in HALF
        for by_autocast in (False, True)
    ]
    most = max(found, key=lambda half: half.share)
    return most if most.share > MAIN_SHARE else None


def _elements(model: Model, kind: str, by_autocast: bool) -> int:
    """Return how many elements of a model are computed in that type."""
    if not by_autocast:
        return model.elements.get(kind, 0)
    return model.elements.get(FLOAT32, 0) if (model.autocast or "").endswith(f" {kind}") else 0


def find_processor_features(evidence: Evidence, trainer: Trainer) -> frozenset[str] | None:
    """Return the vector units that the trainer's processor has, as Linux names them; None if unknown."""
    known = evidence.get(find_host_facts, trainer.host).get("cpu_features")
    return None if known is None else frozenset(known.split())


def has_instructions(features: frozenset[str], kind: str) -> bool:
    """Return whether a processor with these features computes in a 16-bit type."""
    return bool(features & INSTRUCTIONS[kind])
