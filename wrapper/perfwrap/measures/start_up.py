"""What passed before the training went steadily."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StartUp:
    """The time from the process's start to the end of the first step, and the warm-up after it.

    ``parts`` tiles ``total_ns`` exactly: ``interpreter`` (before the recorder saw anything), ``import torch``,
    ``loader start``, ``first batch``, ``first forward``, ``first backward``, ``first optimizer``, ``validation``,
    ``load``, ``sync``, ``rest`` (the program's other Python: imports, data set, model).
    """

    total_ns: int
    parts: dict[str, int]
    warm_up_steps: int
    warm_up_excess_ns: int
    """What the warm-up steps took beyond as many median steps, the first step included."""
    run_share: float
    """``total_ns`` over the whole life of the process."""
