"""What a program spent its time on, from a recording of py-spy: phases by the functions on the stack, and own lines.

py-spy looks from outside and knows nothing of training, so it is independent of perfwrap. A sample belongs to one
phase. The outermost mark decides for phases that contain others (a validation runs the model), the innermost of
optimizer, backward and forward for the rest (LBFGS calls the model).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PHASES = (
    "imports",
    "preparation",
    "data",
    "forward",
    "backward",
    "optimizer",
    "validation",
    "saving",
    "logging",
    "compile",
    "environment",
    "other",
    "end",
)
NOT_LOOP = ("imports", "preparation", "end")
WORK = ("data", "forward", "backward", "optimizer", "validation", "saving", "environment", "compile")
"""Phases that begin and end the training; what comes before is preparation, what comes after is the end."""

MARKS = {
    "imports": r"<frozen importlib\._bootstrap>:_find_and_load$",
    "compile": r"torch/_dynamo/convert_frame\.py|torch/_inductor/compile_fx\.py:\w*compile|/triton/compiler/",
    "saving": r"torch/serialization\.py:_?save$|safetensors/torch\.py:save|:_?save_(checkpoint|pretrained|model)$",
    "validation": r"OWN:(validate|validation|evaluate|eval|test|estimate_loss|run_eval|eval_\w+|test_\w+|validate_\w+)$"
    r"|lightning/pytorch/loops/evaluation_loop\.py|transformers/trainer\.py:evaluat",
    "environment": r"/gymnasium/",
    "logging": r"/tensorboardX?/|/tqdm/[^:]*:(?!__iter__$)|/rich/|/wandb/|/lightning/\w+/loggers/|/matplotlib/"
    r"|/logging/__init__\.py",
    "data": r"/torch/utils/data/|/torchvision/(transforms|datasets)/|/PIL/|OWN:(__getitem__|get_batch|collate\w*)$",
}
"""What makes a sample of each enclosing phase, in order of precedence: expressions for "file:function". OWN:function is
one of the program's own files."""
INNER = (
    ("optimizer", r"/torch/optim/\w+\.py:(step|zero_grad|_single_tensor_\w+|_multi_tensor_\w+|\w*step\w*)$"),
    ("backward", r"/torch/_tensor\.py:backward$|/torch/autograd/__init__\.py:(backward|grad)$"),
    ("forward", r"/torch/nn/modules/module\.py:_(wrapped_)?call_impl$|/torch/nn/functional\.py:"),
)
"""The innermost of these decides."""
MIN_LINE_SHARE = 0.03
MIN_OTHER_SHARE = 0.01


@dataclass(frozen=True)
class Truth:
    """Where the main thread of a program was."""

    wall_s: float
    samples: int
    phases: Mapping[str, float]
    """Share of the whole time by phase."""
    lines: Mapping[str, float]
    """Share of the whole time in which a line of the program's own files was on the stack, "file:line"."""
    others: Mapping[str, float] = field(default_factory=dict)
    """Share of the whole time by the innermost function, for samples of no known phase."""

    def loop(self, phase: str) -> float:
        """Return the share of a phase in the time between preparation and end."""
        whole = sum(share for name, share in self.phases.items() if name not in NOT_LOOP)
        return self.phases.get(phase, 0.0) / whole if whole else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return what the results folder keeps."""
        return {
            "wall_s": round(self.wall_s, 1),
            "samples": self.samples,
            "phases": {name: round(share, 3) for name, share in self.phases.items() if share >= 0.001},
            "loop": {
                name: round(self.loop(name), 3)
                for name in self.phases
                if name not in NOT_LOOP and self.loop(name) >= 0.001
            },
            "lines": {line: round(share, 3) for line, share in self.lines.items()},
            "others": {name: round(share, 3) for name, share in self.others.items()},
        }


def read(path: Path, own: Path, marks: Mapping[str, str], wall_s: float) -> Truth:
    """Read a file in speedscope's format, of the process that trains."""
    content = json.loads(path.read_text(encoding="utf-8"))
    frames = content["shared"]["frames"]
    names = [_name(frame, own) for frame in frames]
    lines = [_line(frame, own) for frame in frames]
    kinds = _kinds(names, lines, marks)
    stacks = _main_thread(content["profiles"], kinds)
    phases = [_phase([kinds[frame] for frame in stack]) for stack in stacks]
    phases = _with_ends(phases)
    count = Counter(phases)
    seen: Counter[str] = Counter()
    for stack in stacks:
        seen.update({lines[frame] for frame in stack if lines[frame]})
    total = max(1, len(stacks))
    others = Counter(
        _shown(frames[stack[-1]])
        for stack, phase in zip(stacks, phases, strict=True)
        if phase == "other" and stack
    )
    return Truth(
        wall_s,
        len(stacks),
        {name: count[name] / total for name in PHASES},
        {line: number / total for line, number in seen.most_common() if number / total >= MIN_LINE_SHARE},
        {name: number / total for name, number in others.most_common(5) if number / total >= MIN_OTHER_SHARE},
    )


def saved(path: Path) -> Truth:
    """Return a truth that the results folder keeps."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return Truth(
        content["wall_s"], content["samples"], content["phases"], content["lines"], content.get("others", {})
    )


def _main_thread(profiles: Sequence[Mapping[str, Any]], kinds: list[frozenset[str]]) -> list[list[int]]:
    """Return the stacks, in order of time, of the thread with most backward passes; if none has any, the longest."""

    def weight(profile: Mapping[str, Any]) -> tuple[int, int]:
        trained = sum(any("backward" in kinds[frame] for frame in stack) for stack in profile["samples"])
        return trained, len(profile["samples"])

    first = max(profiles, key=weight, default=None)
    return [] if first is None else list(first["samples"])


def _name(frame: Mapping[str, Any], own: Path) -> str:
    function = frame["name"].rpartition(".")[2]
    place = "OWN" if _line(frame, own) else frame["file"]
    return f"{place}:{function}"


def _shown(frame: Mapping[str, Any]) -> str:
    file = "/".join((frame["file"] or "").split("/")[-2:])
    return f"{file}:{frame['name']}"


def _line(frame: Mapping[str, Any], own: Path) -> str:
    """Return file and line of a frame in the program's own files."""
    file = frame["file"] or ""
    if not file.startswith(f"{own}/"):
        return ""
    return f"{file[len(str(own)) + 1 :]}:{frame['line']}"


def _kinds(names: list[str], lines: list[str], marks: Mapping[str, str]) -> list[frozenset[str]]:
    found = []
    for name, line in zip(names, lines, strict=True):
        kinds = {kind for kind, expression in MARKS.items() if re.search(expression, name)}
        kinds |= {
            kind
            for kind, expression in marks.items()
            for place in (name, line)
            if re.search(expression, place)
        }
        kinds |= {kind for kind, expression in INNER if re.search(expression, name)}
        found.append(frozenset(kinds))
    return found


def _phase(stack: list[frozenset[str]]) -> str:
    """Return the phase of a stack, its outermost frame first."""
    everywhere = frozenset().union(*stack) if stack else frozenset()
    for kind in MARKS:
        if kind in everywhere:
            return kind
    inner = [kind for kinds in stack for kind, _ in INNER if kind in kinds]
    return inner[-1] if inner else "other"


def _with_ends(phases: list[str]) -> list[str]:
    """Name the program's own code before and after the training."""
    places = [place for place, phase in enumerate(phases) if phase in WORK]
    if not places:
        return ["imports" if phase == "imports" else "preparation" for phase in phases]
    first, last = places[0], places[-1]
    return [
        phase if phase == "imports" or first <= place <= last else "preparation" if place < first else "end"
        for place, phase in enumerate(phases)
    ]
