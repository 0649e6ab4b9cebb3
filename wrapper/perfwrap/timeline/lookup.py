"""Small lookups in a timeline that many measures use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import polars as pl

from perfwrap.timeline.model import Timeline

Kept = TypeVar("Kept")


MAX_KEPT_ROWS = 1_000_000
"""A result with more rows is computed each time: stored, it would use as much memory as the timeline."""


def once(timeline: Timeline, what: object, work: Callable[[Timeline], Kept], most_rows: int = 0) -> Kept:
    """Return a result that is computed once per timeline; ``what`` is its key.

    ``most_rows`` is the maximum number of its rows, if that can be large.
    """
    if most_rows > MAX_KEPT_ROWS:
        return work(timeline)
    if what not in timeline.kept:
        timeline.kept[what] = work(timeline)
    return timeline.kept[what]  # type: ignore[no-any-return]


def facts_of(timeline: Timeline, track: int) -> dict[str, str]:
    """Return the facts of a track; for each key, the last value."""
    return dict(once(timeline, "facts", _facts_by_track).get(track, {}))


def host_facts(timeline: Timeline, host: str) -> dict[str, str]:
    """Return the facts of a host."""
    found = timeline.tracks.filter(pl.col("kind") == "host", pl.col("name") == host)
    return facts_of(timeline, found["id"][0]) if found.height else {}


def samples_of(timeline: Timeline, entity: str, metric: str, host: str | None = None) -> pl.DataFrame:
    """Return time and value of one series, sorted by time; empty if it was not sampled.

    ``entity`` is ``host``, the name of a device (``gpu/0``, ``cgroup``) or ``process/PID``; without ``host``, of
    the first host.
    """
    tracks = timeline.tracks
    if host is None and tracks.height:
        host = next(iter(tracks.filter(pl.col("kind") == "host")["name"]), None)
    owners = tracks.filter(_is_entity(entity), pl.col("host") == host)["id"].to_list()
    return _series(timeline, owners, metric)


def track_samples(timeline: Timeline, track: int, metric: str) -> pl.DataFrame:
    """Return time and value of one series about a track."""
    return _series(timeline, [track], metric)


def mean_over(samples: pl.DataFrame, start: int, end: int) -> float | None:
    """Return the mean of the samples inside [start, end]; of all samples if none is inside, None if there are none."""
    time = samples["time"]
    inside = samples["value"].filter((time >= start) & (time <= end))
    values = inside if inside.len() else samples["value"]
    return None if values.is_empty() else float(values.mean())  # type: ignore[arg-type]


def _is_entity(entity: str) -> pl.Expr:
    """Return the condition on tracks for the owner with that name."""
    kind, _, name = entity.partition("/")
    if kind == "process":
        return (pl.col("kind") == "process") & (pl.col("pid") == int(name))
    if kind == "host":
        return pl.col("kind") == "host"
    return (pl.col("kind") == kind) & (pl.col("name") == entity)


def _series(timeline: Timeline, owners: list[int], metric: str) -> pl.DataFrame:
    """Return time and value of the series with that name about some tracks, sorted by time."""
    counters = once(timeline, "counters", _counters)
    known = [number for owner in owners for number in counters.get((owner, metric), ())]
    samples, places = once(timeline, "samples", _samples_by_track)
    found = [places[number] for number in known if number in places]
    if len(found) < 2:
        return samples.slice(*(found or [(0, 0)])[0])
    rows = timeline.samples.filter(pl.col("track").is_in(known))
    return rows.select("time", "value")


def _facts_by_track(timeline: Timeline) -> dict[int, dict[str, str]]:
    """Return the facts of each track."""
    found: dict[int, dict[str, str]] = {}
    for track, key, value in timeline.facts.select("track", "key", "value").iter_rows():
        found.setdefault(track, {})[key] = value
    return found


def _counters(timeline: Timeline) -> dict[tuple[int, str], list[int]]:
    """Return the tracks of the series about each track, by name."""
    found: dict[tuple[int, str], list[int]] = {}
    counters = timeline.tracks.filter(pl.col("kind") == "counter")
    for track, parent, name in counters.select("id", "parent", "name").iter_rows():
        found.setdefault((parent, name), []).append(track)
    return found


def _samples_by_track(timeline: Timeline) -> tuple[pl.DataFrame, dict[int, tuple[int, int]]]:
    """Return time and value of all samples, grouped by track, and where the samples of each track begin."""
    ordered = timeline.samples.select("track", "time", "value").sort("track", maintain_order=True)
    lengths = ordered["track"].rle().struct.unnest()
    begins = lengths["len"].cum_sum() - lengths["len"]
    places = zip(begins.to_list(), lengths["len"].to_list(), strict=True)
    return ordered.select("time", "value"), dict(zip(lengths["value"].to_list(), places, strict=True))
