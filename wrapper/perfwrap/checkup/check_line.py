"""One line of a checkup."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Line:
    """Whether something works here; ``detail`` says what was found or why it does not."""

    works: Literal["yes", "no", "partly"]
    what: str
    detail: str
