"""The threads that are making a batch: what they do belongs to the batch, not to the training step."""

from __future__ import annotations

busy = set()  # threads, and ids of fetchers, that are making a batch
