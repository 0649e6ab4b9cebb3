"""Exposes the progress of a run to Prometheus: a page of metrics over HTTP, if the user gave a port.

It is served by the process of the monitors, on loopback unless the user gives another address, which requires a token.
"""

from __future__ import annotations

from collections.abc import Callable

from perfwrap.monitors.metrics.metrics_options import PATH, MetricsOptions
from perfwrap.monitors.monitor_journal import JournalWriter
from perfwrap.monitors.progress.shown_progress import SharedProgress
from perfwrap.monitors.watcher import Monitor
from perfwrap.run_folder import RunFolder

INSTALL = "pip install 'perfwrap[metrics]'"


def watch(
    journal: JournalWriter,
    run: RunFolder,
    options: MetricsOptions | None,
    shown: SharedProgress,
    say: Callable[[str], None],
) -> Monitor | None:
    """Start to serve; None if not requested, or if it failed, which is reported."""
    if options is None:
        return None
    try:
        # Imported here: a web server takes long to load, and its library is optional.
        from perfwrap.monitors.metrics.metrics_page import RunCollector, serve

        found = serve(options, RunCollector(run.whole.path.name, journal, shown))
    except ImportError:
        _give_up(journal, say, f"prometheus_client is not installed: {INSTALL}")
        return None
    except (OSError, OverflowError) as error:  # a port beyond 65535 is no OSError
        _give_up(journal, say, f"port {options.port} of {options.address}: {error}")
        return None
    journal.latest = {}
    say(f"perfwrap: metrics on http://{options.address}:{found.port}{PATH}")
    return found


def _give_up(journal: JournalWriter, say: Callable[[str], None], why: str) -> None:
    """Report why there are no metrics; the run continues."""
    journal.not_watched("metrics", why)
    say(f"perfwrap: no metrics: {why}")
