"""Reads the files that the recorder wrote when GPU memory ran out: ``memory/<host>-<pid>-<number>.pickle``.

Each group of live blocks becomes a mark ``live_block`` with its bytes and the innermost line of its stack that is
outside of torch and installed packages, or the innermost line if there is none. A file that cannot be read is
skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from perfwrap.errors import PerfwrapError
from perfwrap.run_folder import RunFolder
from perfwrap.sources.damage import UNFORESEEN
from perfwrap.timeline.builder import TimelineBuilder

FOLDER = "memory"
NAME = re.compile(r"^(?P<host>.+)-(?P<pid>\d{1,10})-(?P<number>\d{1,18})\.pickle$", re.ASCII)
MAX_GROUPS = 50


def add_all(folder: RunFolder, builder: TimelineBuilder, shown: Callable[[str], str] = str) -> None:
    """Add the live blocks of all files, those of each file at one moment, in the order of the files' numbers.

    ``shown`` returns the name in the run of a host that a file names.
    """
    paths = sorted((folder.path / FOLDER).glob("*.pickle"))
    if not paths:
        return
    # Imported here: most runs have no such file, and a report starts faster without its reader.
    from perfwrap.sources.gpu_memory.memory_snapshot import read_snapshot, users_line

    for path in paths:
        name = NAME.match(path.name)
        if name is None:
            continue
        try:
            snapshot = read_snapshot(path)
        except (PerfwrapError, *UNFORESEEN) as error:
            builder.warn(f"{path.name} in the folder {FOLDER} was skipped: {error}")
            continue
        process = builder.latest_process(shown(name["host"]), int(name["pid"]))
        for group in snapshot.groups[:MAX_GROUPS]:
            file, line, function = users_line(group.stack) or (None, None, None)
            builder.add_row(
                "marks",
                time=int(name["number"]),
                track=process,
                name="live_block",
                detail=str(group.blocks),
                file=file or None,
                line=line if file else None,
                function=function,
                value=float(group.size),
                source="recorder",
            )
