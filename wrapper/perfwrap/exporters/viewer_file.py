"""What the exporters for viewers of stacks share: which stacks there are, and where the file goes."""

from __future__ import annotations

from perfwrap.errors import PerfwrapError
from perfwrap.exporters.export_model import Destination, Exported, StackProfile, own_place
from perfwrap.private_files import replacing


def demand_profiles(run: Exported) -> tuple[StackProfile, ...]:
    """Return the profiles of a run; PerfwrapError if no stacks were recorded."""
    if not run.profiles:
        raise PerfwrapError(
            "This run has no stacks: neither a sampler nor an inspection recorded any.",
            "Record with py-spy (perfwrap doctor says whether it works here), or with perfwrap run --inspect.",
        )
    return run.profiles


def write_file(run: Exported, where: Destination, name: str, content: bytes) -> str:
    """Write a file in one step, by default into the run folder, and return the line to print."""
    path = where.out or own_place(run.folder, name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        raise PerfwrapError(
            f"Cannot write {path}: {error.strerror}.", "Choose another file: --out FILE"
        ) from error
    return f"Written: {path}"
