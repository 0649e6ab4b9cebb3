"""Where the page of metrics is served."""

from __future__ import annotations

from dataclasses import dataclass

PATH = "/metrics"


@dataclass(frozen=True)
class MetricsOptions:
    """The options of the user."""

    port: int
    address: str
    token_file: str = ""
