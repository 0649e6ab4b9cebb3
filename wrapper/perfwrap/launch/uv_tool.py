"""`uv tool run` puts the environment of a tool first on PATH, also for the command that perfwrap starts.

There `python` would be perfwrap's own, which has no PyTorch, and not the one that the command names without perfwrap.
Seen: uv 0.13. `uv run` puts an environment first as well, but names it in VIRTUAL_ENV: that one is the command's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path


def without_tool(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without perfwrap's own programs on PATH, if `uv tool run` put them there.

    Unless the tool has PyTorch (`uv tool run --with torch`): then its Python is meant.
    """
    own = str(Path(sys.executable).parent)
    first, _, rest = environment.get("PATH", "").partition(os.pathsep)
    is_added = "UV" in environment and first == own and environment.get("VIRTUAL_ENV") != sys.prefix
    return {**environment, "PATH": rest} if is_added and find_spec("torch") is None else dict(environment)
