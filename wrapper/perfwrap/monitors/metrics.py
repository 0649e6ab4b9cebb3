"""Shows how a run stands to Prometheus: a page of metrics over HTTP, where the user asked for a port.

Served beside the program, in the monitors' process; on loopback unless the user names another address, for which a
token is wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perfwrap.monitors.journal import JournalWriter
from perfwrap.monitors.shown import Shown
from perfwrap.monitors.watcher import Monitor
from perfwrap.run_folder import RunFolder

PATH = "/metrics"
INSTALL = "pip install 'perfwrap[metrics]'"


@dataclass(frozen=True)
class Asked:
    """What the user asked."""

    port: int
    address: str
    token_file: str = ""


def watch(
    journal: JournalWriter, run: RunFolder, asked: Asked | None, shown: Shown, say: Callable[[str], None]
) -> Monitor | None:
    """Begin to serve; None where nobody asked for it, and where it cannot be, which is said."""
    if asked is None:
        return None
    try:
        # Only here: a web server is a lot to load, and its library is there only where somebody wants this.
        from perfwrap.monitors.metrics_page import RunCollector, serve

        found = serve(asked, RunCollector(run.whole.path.name, journal, shown))
    except ImportError:
        _give_up(journal, say, f"prometheus_client is not installed: {INSTALL}")
        return None
    except (OSError, OverflowError) as error:  # a port beyond 65535 is no OSError
        _give_up(journal, say, f"port {asked.port} of {asked.address}: {error}")
        return None
    journal.latest = {}
    say(f"perfwrap: metrics on http://{asked.address}:{found.port}{PATH}")
    return found


def _give_up(journal: JournalWriter, say: Callable[[str], None], why: str) -> None:
    """Say why there are no metrics; the run goes on."""
    journal.not_watched("metrics", why)
    say(f"perfwrap: no metrics: {why}")
