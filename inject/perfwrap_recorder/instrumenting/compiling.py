"""Whether Dynamo compiles the functions that this thread calls: it would count the recorder's own, too."""

from __future__ import annotations

import sys


def compiles_frames(torch):
    """Return whether Dynamo looks at each function that this thread calls now."""
    if "torch._dynamo" not in sys.modules:
        return False
    ask = getattr(getattr(torch._C._dynamo, "eval_frame", None), "get_eval_frame_callback", None)
    return ask is None or ask() is not None
