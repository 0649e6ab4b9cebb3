"""Sets the batch size of each DataLoader that was given one.

If the loader was given a batch sampler of exactly torch's own class, it gets a new one around the same sampler.
Refuses if another class, or the dataset itself, makes the batches. The learning rate is not changed.
"""

from __future__ import annotations

from perfwrap_recorder.experiments import loader_arguments


def install(torch, change):
    """Make each loader use batches of that size."""
    wanted = int(change.value)

    def adjust(making):
        batch_sampler = making.given.get("batch_sampler")
        if batch_sampler is not None:
            _adjust_sampler(torch, change, making, batch_sampler, wanted)
        elif "batch_size" not in making.given:
            return  # the default, one sample at a time: probably not the loader that is meant
        elif making.given["batch_size"] is None:
            change.refuse("the loader makes no batches itself: its batch size is None")
        else:
            making.set(change, "batch_size", wanted)

    loader_arguments.add(torch, change, adjust)


def _adjust_sampler(torch, change, making, batch_sampler, wanted):
    kind = torch.utils.data.BatchSampler
    if type(batch_sampler) is not kind:
        change.refuse("the batches are made by a batch sampler of class %s" % type(batch_sampler).__name__)
    elif batch_sampler.batch_size != wanted:
        making.given["batch_sampler"] = kind(batch_sampler.sampler, wanted, batch_sampler.drop_last)
        before, after = "batch_size=%s" % batch_sampler.batch_size, "batch_size=%d" % wanted
        change.apply(making.frame, before, after, making.is_inside)
