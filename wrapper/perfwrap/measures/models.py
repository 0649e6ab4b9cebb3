"""What the recorder wrote about the models of a process: the facts ``model/NAME/...``.

``model_facts.py``, ``unused_gradients.py`` and ``settings_facts.py`` of the recorder write them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct, field

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts
from perfwrap.measures.trainers import Trainer

PREFIX = "model/"
GRADIENTS = re.compile(r"(\d{1,9}) (\d{1,18}) (\d{1,9}) (\d{1,18}) (.*)")


class Gradients(Struct, frozen=True):
    """The gradients of one model: tensors and elements, all and unused, and the name of the first unused one."""

    tensors: int
    elements: int
    unused: int
    unused_elements: int
    first: str


class Model(Struct, frozen=True):
    """One class of models, by its name; what was not recorded is None or empty.

    Modules without parameters (loss functions) have at most a name and an autocast.
    """

    name: str
    kind: str | None = None
    """The full name of its class; None if it has no parameters."""
    parameters: int | None = None
    """Elements of all its parameters."""
    device: str | None = None
    """The device of its first parameter: cpu, cuda:0."""
    elements: Mapping[str, int] = field(default_factory=dict)
    """Elements of its parameters by type (torch.float32)."""
    autocast: str | None = None
    """Device and type of the autocast under which it was last called in training (cpu torch.bfloat16), or off."""
    channels_last: str | None = None
    """How many of its convolutions' weights are in channels-last order: "3 of 20"."""
    gradients: Gradients | None = None
    """The last figures of its gradients."""
    embeds: bool = False
    """Whether it looks up embeddings."""
    skips_padding: bool | None = None
    """Whether names in its code suggest that it skips padding; known if it embeds."""
    mixes_positions: bool | None = None
    """Whether names in its code suggest that it combines the positions of a sequence; known if it embeds."""


def find_models(evidence: Evidence, trainer: Trainer) -> tuple[Model, ...]:
    """Return the models of the trainer's process, in the order in which they were first called."""
    facts_by_model: dict[str, dict[str, str]] = {}
    for key, value in evidence.get(find_facts, trainer.process).items():
        head, _, what = key.rpartition("/")
        if head.startswith(PREFIX):
            facts_by_model.setdefault(head.removeprefix(PREFIX), {})[what] = value
    return tuple(_model(name, facts) for name, facts in facts_by_model.items())


def find_devices(evidence: Evidence, trainer: Trainer) -> frozenset[str]:
    """Return the devices of the trainer's models."""
    devices = (model.device for model in evidence.get(find_models, trainer))
    return frozenset(device for device in devices if device is not None)


def _model(name: str, facts: Mapping[str, str]) -> Model:
    """Return one model from its facts."""
    return Model(
        name,
        kind=facts.get("class"),
        parameters=_whole(facts.get("parameters", "")),
        device=facts.get("device"),
        elements=_elements(facts.get("dtypes", "")),
        autocast=facts.get("autocast"),
        channels_last=facts.get("channels_last"),
        gradients=_gradients(facts.get("gradients", "")),
        embeds="embeds" in facts,
        skips_padding=_flag(facts.get("skips_padding")),
        mixes_positions=_flag(facts.get("mixes_positions")),
    )


def _elements(text: str) -> dict[str, int]:
    """Return the number of elements of each type: ``torch.float32 1200, torch.int64 3``."""
    counts = (each.rpartition(" ") for each in text.split(", "))
    return {kind: int(many) for kind, _, many in counts if many.isdecimal()}


def _gradients(text: str) -> Gradients | None:
    """Return the figures of a model's gradients, None if there are none."""
    words = GRADIENTS.fullmatch(text)
    if words is None:
        return None
    tensors, elements, unused, unused_elements = map(int, words.groups()[:4])
    return Gradients(tensors, elements, unused, unused_elements, words[5])


def _whole(text: str) -> int | None:
    """Return a whole number, None if it is none."""
    return int(text) if text.isdecimal() else None


def _flag(text: str | None) -> bool | None:
    """Return a yes or no, None if it is absent."""
    return None if text is None else text == "True"
