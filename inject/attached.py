"""Bring the recorder into a program that runs already: what ``sys.remote_exec`` has it run, on Python 3.14 and later.

Copied into a run folder. Python runs it in the program's main thread between two operations of its own, in a namespace
of its own, and would print what it raises: it raises nothing.
"""

import linecache
import os
import sys

HOOK = ""  # filled in: the directory of this file, which Python does not pass
FORMAT = "journal_format"
"""The recorder's module that decides whether two versions are compatible."""


def load_shim():
    """Return sitecustomize.py as a module that has done nothing yet."""
    shim = type(sys)("attached")
    shim.__file__ = HOOK + "/sitecustomize.py"
    with open(shim.__file__, "rb") as source:
        exec(compile(source.read(), shim.__file__, "exec"), shim.__dict__)  # nosec B102 # a file of ours
    return shim


def bring(shim):
    """Start the recorder by the shim, or write to the run folder why there is none."""
    reason = find_obstacle(shim.DATA)
    if reason is None and not hasattr(sys, "_perfwrap"):
        shim.inject()
        return
    shim.quietly(shim.note, "start")
    if reason is None:
        shim.bring_on_import().start_again()
    else:
        shim.quietly(shim.note, "failed", reason)


def find_obstacle(data):
    """Return why this process should be left as it is, None if it can be recorded."""
    for name in ("PERFWRAP_OFF", "PERFWRAP_DISABLE"):
        if os.environ.get(name) == "1":
            return "%s=1 is set in its environment" % name
    if hasattr(sys, "_perfwrap"):
        return find_earlier(data)
    if "torch" not in sys.modules:
        return "it has not imported torch"
    dynamo = sys.modules.get("torch._dynamo.utils")
    if getattr(dynamo, "counters", {}).get("frames") or getattr(dynamo, "_compilation_metrics", ()):
        return "torch.compile has compiled parts of the program, and might compile them anew"
    return None


def find_earlier(data):
    """Return why a process that has a recorder cannot record into another run; None if its recorder is detached."""
    journal = sys.modules.get("perfwrap_recorder.journal.journal")
    detaching = sys.modules.get("perfwrap_recorder.detaching")
    if detaching:
        detaching.look()  # a program that makes no steps has not noticed yet
    if not getattr(journal, "is_detached", False):
        return "perfwrap records it already, into another run folder"
    with open(os.path.join(HOOK, data, "perfwrap_recorder", FORMAT + ".py"), encoding="utf-8") as source:
        if source.read() != "".join(linecache.getlines("<perfwrap:%s>" % FORMAT)):
            return "another version of perfwrap was attached to it before"
    return None


try:
    shim = load_shim()
except Exception:  # noqa: BLE001, S110 # nosec B110 # the run folder is gone: there is no place for a message
    pass
else:
    shim.quietly(bring, shim)
