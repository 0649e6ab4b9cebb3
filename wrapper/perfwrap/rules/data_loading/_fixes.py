"""The ways to wait less for batches, as options of the rules about DataLoaders.

Each function returns one option, or none where it does not apply or its gain cannot be predicted.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.account.what_if import MOST, without_measured
from perfwrap.measures.data_loading.loaders import LoaderUse
from perfwrap.measures.data_loading.unchanged_items import CheckedItems
from perfwrap.measures.data_loading.worker_need import (
    DEFAULT_PREFETCH,
    MIN_GAIN,
    Step,
    best_workers,
    saved,
    saved_by_workers,
)
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.data_loading import _batch_time as making
from perfwrap.rules.data_loading import _caching as caching
from perfwrap.rules.model import MIN_REPORTED_SHARE, Option, locate, named

CACHED_NS = 2_000
"""Time to get an item from a cache."""
FREE_CORE = 0.5
"""Part of a core that is free on average, from which a worker may have a core."""
OF_PANDAS = (
    "Convert the columns to NumPy arrays or tensors once, when the dataset is made: looking up single values in pandas "
    "takes most of it."
)
CEILING = "cached-batch"
"""The experiment in which batches take no time."""


def item_share(loader: LoaderUse, cached_ns: float = CACHED_NS) -> float:
    """Return the share of making a batch that makes its items, without the time to get them from a cache."""
    made, each = loader.making, caching.item_ns(loader)
    if made is None or not made.getitem_ns or not each:
        return 0.0
    return made.getitem_ns / made.fetch_ns * max(0.0, 1.0 - cached_ns / each)


def caches(evidence: Evidence, trainer: Trainer, loader: LoaderUse, step: Step) -> tuple[Option, ...]:
    """Return the option to make each item only once, if the items never change and fit into memory."""
    items = caching.unchanged(evidence, trainer, loader)
    if items is None or not item_share(loader) or not caching.fits(evidence, trainer, items):
        return ()
    best = _without(loader, step, item_share(loader))
    sure = 1.0 - best if step.workers else loader.share * item_share(loader)
    return (cache(loader, items, best, sure),)


def cache(loader: LoaderUse, items: CheckedItems, best: float, sure: float) -> Option:
    """Return the option to make each item only once.

    ``best`` is the step-time ratio if no item is made, ``sure`` the share of the step that this certainly saves.
    """
    made = loader.making
    name = _short(made.getitem if made else None)
    where = named(name, made.getitem_line if made else None)
    return Option(
        f"Cache the items of {where}, which never change.",
        (best, 1.0 - caching.kept_gain(loader, sure)),
        f"unchanged in {units.count(items.same)} of {units.count(items.count)} checks, {units.size(items.bytes)}",
        CEILING,
        caching.details(loader, items),
        locate(made.getitem_line) if made else None,
    )


def cheaper(evidence: Evidence, trainer: Trainer, loader: LoaderUse, step: Step) -> tuple[Option, ...]:
    """Return the option to make the function faster that takes most of making a batch, if it is known."""
    cost = making.main_part(evidence, trainer, loader)
    if cost is None:
        return ()
    best, of_pandas = _without(loader, step, cost.share), _share_of_pandas(cost)
    return (
        Option(
            f"Make {cost.words} cheaper.",
            (best, 1.0 - MOST * of_pandas * (1.0 - best)),
            f"{units.share(cost.share)} of making a batch",
            CEILING,
            OF_PANDAS
            if of_pandas
            else "Cache what does not change, decode at the size that you need, work on whole tensors.",
            locate(cost.line),
        ),
    )


def _share_of_pandas(cost: making.Cost) -> float:
    """Return the part of a function's samples in which pandas looks up values; 0 if that is not most of them.

    From NumPy arrays, the same took 1/327 of the time in a public data set (csv_pixels in scripts/real_fixes).
    """
    call = cost.library
    return min(1.0, call.count / cost.count) if call and call.package == "pandas" and cost.count else 0.0


def first_workers(loader: LoaderUse, step: Step) -> tuple[Option, ...]:
    """Return the option to give a loader without workers as many as help, if any do."""
    workers = best_workers(step)
    if not workers or loader.of_daemon:
        return ()
    queue = step.queue_with(workers)
    settings = _persistent(loader)
    settings += f", prefetch_factor={queue}" if queue != DEFAULT_PREFETCH else ""
    verb = "worker makes" if workers == 1 else "workers make"
    threads, fewer = _fewer_threads(step, workers)
    once = " Create it once, before the epochs." if loader.made_again and loader.epochs > 1 else ""
    changes = [f"workers={workers}"]
    changes += [f"prefetch={queue}"] if queue != DEFAULT_PREFETCH else []
    changes += threads
    return (
        Option(
            f"Pass num_workers={workers}{settings} to {_where(loader)}.",
            saved_by_workers(step),
            _times(step),
            "+".join(changes),
            f"{units.count(workers)} {verb} the next batches while the training runs.{once} {fewer}".rstrip(),
        ),
    )


def may_help(loader: LoaderUse, step: Step) -> bool:
    """Return whether a worker gains at the favourable end of its range."""
    return not loader.of_daemon and saved(step, 1)[0] <= 1.0 - MIN_GAIN


def uncertain_worker(loader: LoaderUse, step: Step) -> tuple[Option, ...]:
    """Return the option to try one worker where workers more likely help than not: never the first one."""
    if step.workers or not may_help(loader, step) or best_workers(step):
        return ()
    # A saving ends at no gain, but a worker on full cores can also make steps longer.
    if step.with_workers(1) > (1.0 - MIN_GAIN) * step.now_ns:
        return ()
    best, worst = saved(step, 1)
    # At most the waits disappear: more would make it the first option.
    best = max(best, 1.0 - step.fetch_ns / step.now_ns)
    if best > 1.0 - MIN_GAIN:
        return ()
    threads, fewer = _fewer_threads(step, 1)
    changes = "+".join(["workers=1", *threads])
    edit = f"Try num_workers=1{_persistent(loader)} for {_where(loader)}."
    return (Option(edit, (best, worst), _times(step), changes, fewer),)


def _persistent(loader: LoaderUse) -> str:
    """Return the argument that keeps new workers for all epochs, if there are several."""
    return ", persistent_workers=True" if loader.epochs > 1 else ""


def _fewer_threads(step: Step, workers: int) -> tuple[list[str], str]:
    """Return the change and the sentence that leave cores to the workers, as the simulation assumes; none if needless.

    On full cores, workers beside as many threads as before can make a step longer than without workers.
    """
    threads = step.threads_with(workers)
    if threads >= step.threads:
        return [], ""
    core = "it a core" if workers == 1 else "them cores"
    return [f"threads={threads}"], f"Call torch.set_num_threads({threads}) to leave {core}."


def no_workers(loader: LoaderUse, step: Step) -> str:
    """Return why a loader that takes time gets no workers; empty if that is other programs on the cores."""
    if loader.of_daemon:
        return "Workers are not possible, because its process is a daemon, which may have no children."
    if step.crowded:
        return ""
    if step.shared.cores is None:
        return "Workers may gain nothing: how many cores the run may use is unknown."
    used = step.work_ns / step.now_ns
    if step.shared.cores - step.shared.taken - used < FREE_CORE:
        return "Workers may gain nothing, because no core is free for them."
    return "Workers may gain nothing, because the cores get slower while more of them are busy."


def more_workers(
    loader: LoaderUse,
    step: Step,
    min_gain_share: float = MIN_REPORTED_SHARE,
) -> tuple[Option, ...]:
    """Return the option to raise the number of workers, if that gains as much."""
    workers = best_workers(step)
    if not step.workers or workers <= step.workers:
        return ()
    best, worst = saved(step, workers)
    if 1.0 - best < min_gain_share:
        return ()
    verb = "Pass" if worst <= 1.0 - MIN_GAIN else "Try"
    return (
        Option(
            f"{verb} num_workers={workers} instead of {step.workers} to {_where(loader)}.",
            (best, worst),
            _times(step),
            f"workers={workers}",
        ),
    )


def _without(loader: LoaderUse, step: Step, part: float) -> float:
    """Return the best step-time ratio if making a batch takes less by this part."""
    if not step.workers:
        return without_measured(loader.share * part)[0]
    return min(1.0, step.cheaper(part).range_with(step.workers)[0] / step.now_ns)


def _times(step: Step) -> str:
    """Return the figures on which the model of workers rests."""
    cores = "" if step.cores is None else f", {units.counted(round(step.cores), 'core')}"
    return f"{units.duration(step.fetch_ns)} per batch, {units.duration(step.rest_ns)} for the rest of the step{cores}"


def _where(loader: LoaderUse) -> str:
    return named("the DataLoader", loader.created)


def _short(name: str | None) -> str:
    """Return a method's name as in the user's code."""
    return ".".join((name or "the dataset").removeprefix("__main__.").split(".")[-2:])
