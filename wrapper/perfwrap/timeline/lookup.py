"""Small questions to a timeline that many measures ask."""

from __future__ import annotations

import polars as pl

from perfwrap.timeline.model import Timeline


def facts_of(timeline: Timeline, track: int) -> dict[str, str]:
    """Return the facts of a track; of each key the value that was learned last."""
    rows = timeline.facts.filter(pl.col("track") == track)
    return dict(zip(rows["key"].to_list(), rows["value"].to_list(), strict=True))


def host_facts(timeline: Timeline, host: str) -> dict[str, str]:
    """Return the facts of a host."""
    found = timeline.tracks.filter(pl.col("kind") == "host", pl.col("name") == host)
    return facts_of(timeline, found["id"][0]) if found.height else {}


def samples_of(timeline: Timeline, entity: str, metric: str, host: str | None = None) -> pl.DataFrame:
    """Return time and value of one series, sorted by time; empty when nobody sampled it.

    ``entity`` is ``host``, the name of a device (``gpu/0``, ``cgroup``) or ``process/PID``; of the first
    host when no host is given.
    """
    tracks = timeline.tracks
    if host is None and tracks.height:
        host = next(iter(tracks.filter(pl.col("kind") == "host")["name"]), None)
    owners = tracks.filter(_is_entity(entity), pl.col("host") == host)["id"].to_list()
    counters = tracks.filter(
        pl.col("kind") == "counter", pl.col("name") == metric, pl.col("parent").is_in(owners)
    )
    rows = timeline.samples.filter(pl.col("track").is_in(counters["id"].to_list()))
    return rows.select("time", "value")


def track_samples(timeline: Timeline, track: int, metric: str) -> pl.DataFrame:
    """Return time and value of one series about a track."""
    counters = timeline.tracks.filter(
        pl.col("kind") == "counter", pl.col("name") == metric, pl.col("parent") == track
    )
    return timeline.samples.filter(pl.col("track").is_in(counters["id"].to_list())).select("time", "value")


def mean_over(samples: pl.DataFrame, start: int, end: int) -> float | None:
    """Return the mean of the samples inside [start, end], of all when none lies inside, None without any."""
    inside = samples.filter(pl.col("time").is_between(start, end))
    values = (inside if inside.height else samples)["value"]
    return None if values.is_empty() else float(values.mean())  # type: ignore[arg-type]


def _is_entity(entity: str) -> pl.Expr:
    """Return the condition on tracks for the name that a series gives its owner."""
    kind, _, name = entity.partition("/")
    if kind == "process":
        return (pl.col("kind") == "process") & (pl.col("pid") == int(name))
    if kind == "host":
        return pl.col("kind") == "host"
    return (pl.col("kind") == kind) & (pl.col("name") == entity)
