"""Time series of steps, GPUs and the machine with a limited number of points, and means and maxima of the latter."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from msgspec import Struct

from perfwrap.diagnosis.model import Diagnosis
from perfwrap.exporters import metrics
from perfwrap.exporters.export_model import Figure, Labels, Series
from perfwrap.exporters.figures import NANOSECONDS, gpu_label
from perfwrap.exporters.metrics import Metric
from perfwrap.timeline.clocks import HostClock
from perfwrap.timeline.model import Timeline

MAX_POINTS = 500
"""The maximum number of points of one series: more than a chart shows."""
MAX_POINTS_TOGETHER = 20_000
"""The maximum for all series together: a tracking server accepts it within seconds."""
MIN_POINTS = 50
MAX_GPUS = 16
"""The maximum number of GPUs with series and figures, by host and number."""
MAX_RANKS = 16
"""The maximum number of trainers with a series, the lowest ranks."""
SECOND_NS = 1_000_000_000


class Sampled(Struct, frozen=True):
    """Counters that are exported as one: values of the same moment are summed."""

    metric: Metric
    labels: Labels
    tracks: list[int]


def find_series(
    diagnosis: Diagnosis, timeline: Timeline, clock: HostClock
) -> tuple[tuple[Series, ...], tuple[Figure, ...]]:
    """Return the series of a run, and for those of monitors the mean and the maximum over the steady loop."""
    sampled = [*_of_gpus(timeline), *_of_hosts(timeline)]
    trainers = min(len(diagnosis.ranks), MAX_RANKS)
    most = max(MIN_POINTS, min(MAX_POINTS, MAX_POINTS_TOGETHER // max(1, len(sampled) + 2 * trainers)))
    window = _steady(diagnosis)
    series = [*_of_steps(diagnosis, clock, most)]
    figures: list[Figure] = []
    for one in sampled:
        rows = timeline.samples.filter(pl.col("track").is_in(one.tracks), pl.col("value").is_finite())
        if rows.height:
            series.append(_thinned(one, rows, clock, most))
            figures += _summary(one, rows, window)
    return tuple(series), tuple(figures)


def _of_steps(diagnosis: Diagnosis, clock: HostClock, most: int) -> Iterator[Series]:
    """Yield each trainer's step times; without steps that torch.profiler captured for perfwrap.

    With more steps than points, each point is the mean of several steps; a separate series has the slowest of them.
    """
    several = len(diagnosis.ranks) > 1
    tables = list(zip(diagnosis.ranks, diagnosis.step_tables.values(), strict=False))
    for place, (rank, table) in enumerate(tables[:MAX_RANKS]):
        steps = table.filter(~pl.col("windowed"))
        if steps.is_empty():
            continue
        together = -(-steps.height // most)
        points = (
            steps.group_by(pl.int_range(pl.len()) // together, maintain_order=True)
            .agg(
                pl.col("index").first(),
                pl.col("end").last(),
                pl.col("duration").mean().alias("mean"),
                pl.col("duration").max().alias("slowest"),
            )
            .sort("index")
        )
        labels = {"rank": str(place if rank.rank is None else rank.rank)} if several else {}
        wall = tuple(clock.to_wall(points["end"].to_numpy()).tolist())
        numbers = tuple(points["index"].to_list())
        columns = {metrics.STEP_TIME: "mean"} | ({metrics.SLOWEST_STEP: "slowest"} if together > 1 else {})
        for metric, column in columns.items():
            yield Series(metric, labels, wall, tuple((points[column] / NANOSECONDS).to_list()), numbers)


def _counters(timeline: Timeline) -> pl.DataFrame:
    """Return each counter with its subject."""
    owners = timeline.tracks.select(
        pl.col("id").alias("parent"),
        pl.col("kind").alias("owner_kind"),
        pl.col("name").alias("owner"),
        pl.col("role").alias("owner_role"),
    )
    counters = timeline.tracks.filter(pl.col("kind") == "counter").select("id", "name", "parent", "host")
    return counters.join(owners, on="parent").sort("id")


def _of_gpus(timeline: Timeline) -> Iterator[Sampled]:
    """Yield the samples of each GPU and each slice of a GPU."""
    counters = _counters(timeline).filter(
        pl.col("owner_kind").is_in(["gpu", "mig"]), pl.col("name").is_in(list(metrics.OF_GPU))
    )
    several = counters["host"].n_unique() > 1
    gpus = counters.select("host", "owner").unique().sort("host", "owner").head(MAX_GPUS)
    chosen = counters.join(gpus, on=["host", "owner"], nulls_equal=True, maintain_order="left")
    for track, name, host, owner in chosen.select("id", "name", "host", "owner").iter_rows():
        yield Sampled(metrics.OF_GPU[name], {"gpu": gpu_label(owner, host, several)}, [track])


def _of_hosts(timeline: Timeline) -> Iterator[Sampled]:
    """Yield the samples of the first host, and of all processes of the run on it together."""
    first = next(iter(timeline.tracks.filter(pl.col("kind") == "host")["name"]), None)
    counters = _counters(timeline).filter(pl.col("host").eq_missing(pl.lit(first, pl.String)))
    for name, metric in metrics.OF_HOST.items():
        own = counters.filter(pl.col("owner_kind") == "host", pl.col("name") == name)["id"].to_list()
        if own:
            yield Sampled(metric, {}, own[:1])
    for name, metric in metrics.OF_PROCESSES.items():
        is_own = (pl.col("owner_kind") == "process") & (pl.col("owner_role") != "monitor")
        own = counters.filter(is_own.fill_null(False), pl.col("name") == name)["id"].to_list()
        if own:
            yield Sampled(metric, {}, own)


def _thinned(one: Sampled, rows: pl.DataFrame, clock: HostClock, most: int) -> Series:
    """Return at most so many points, each the mean of an interval."""
    begin, end = rows.select(pl.col("time").min().alias("begin"), pl.col("time").max().alias("end")).row(0)
    width = max(SECOND_NS, (end - begin) // most + 1)
    points = _binned(rows, begin, width)
    wall = clock.to_wall((begin + points["bin"] * width + width // 2).to_numpy())
    return Series(one.metric, one.labels, tuple(wall.tolist()), tuple(points["value"].to_list()))


def _summary(one: Sampled, rows: pl.DataFrame, window: tuple[int, int] | None) -> Iterator[Figure]:
    """Yield mean and maximum over the steady loop, or of all samples if none is in it.

    Each second counts the same, however many samples it has.
    """
    inside = rows.filter(pl.col("time").is_between(*window)) if window is not None else rows
    chosen = inside if inside.height else rows
    seconds = _binned(chosen, int(chosen["time"][0]), SECOND_NS)["value"]
    highest = chosen["value"] if len(one.tracks) == 1 else seconds
    for statistic, value in (("mean", seconds.mean()), ("min", highest.min()), ("max", highest.max())):
        yield Figure(one.metric, {**one.labels, "statistic": statistic}, float(value))  # type: ignore[arg-type]


def _binned(rows: pl.DataFrame, begin: int, width: int) -> pl.DataFrame:
    """Return the columns bin and value: the mean of each counter in each interval, summed."""
    place = ((pl.col("time") - begin) // width).alias("bin")
    means = rows.group_by(place, "track").agg(pl.col("value").mean())
    return means.group_by("bin").agg(pl.col("value").sum()).sort("bin")


def _steady(diagnosis: Diagnosis) -> tuple[int, int] | None:
    """Return where the steady steps of all trainers begin and end; None without any."""
    steady = [table.filter("steady") for table in diagnosis.step_tables.values()]
    known = [table for table in steady if table.height]
    if not known:
        return None
    return min(int(table["start"][0]) for table in known), max(int(table["end"][-1]) for table in known)
