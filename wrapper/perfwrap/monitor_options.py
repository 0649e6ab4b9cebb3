"""The options of the monitors."""

from __future__ import annotations

from dataclasses import dataclass, fields

DEFAULT_RATE_HZ = 10.0
DEFAULT_PY_SPY_HZ = 20.0
DEFAULT_BUDGET_MIB = 256
MEBIBYTE = 1 << 20
DEFAULT_STALL_SECONDS = 60.0
DEFAULT_GRACE_SECONDS = 30.0
"""As long as torchrun waits for its workers before it kills them."""
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class MonitorOptions:
    """The options of ``perfwrap run`` that the monitors need."""

    rate_hz: float = DEFAULT_RATE_HZ
    py_spy: str = ""
    """The path of the py-spy to use; empty for none."""
    py_spy_hz: float = DEFAULT_PY_SPY_HZ
    py_spy_native: bool = False
    """Whether py-spy samples compiled code as well, for which it pauses the program."""
    light_sampling: bool = False
    """Whether py-spy samples one training process only, with few samples per second."""
    budget_bytes: int = DEFAULT_BUDGET_MIB * MEBIBYTE
    stall_after_s: float = DEFAULT_STALL_SECONDS
    """The shortest time without a step that is reported as a stall; 0 for never."""
    kill_on_stall: bool = False
    """Whether a stalled command is ended."""
    kill_grace_s: float = DEFAULT_GRACE_SECONDS
    """The time between SIGTERM and SIGKILL."""
    metrics_port: int = 0
    """The port of the metrics server; 0 for none."""
    metrics_address: str = LOOPBACK
    metrics_token_file: str = ""


@dataclass(frozen=True)
class MonitorSettings(MonitorOptions):
    """These options, and what the launcher adds for one process of monitors."""

    hook: str = ""
    """The folder on the command's PYTHONPATH, when it is not RUN_DIR/inject."""
    attached: int = 0
    """The first process of a job that runs already; 0 for a command of the launcher's own."""
    only_processes: bool = False
    """Whether another process monitors host and GPUs."""
    say: int = -1
    """The descriptor for lines that the user sees at once; -1 for none."""
    timed_trial: bool = False
    """Whether the command is a short part of the program that an experiment times."""

    @classmethod
    def of(
        cls,
        options: MonitorOptions,
        *,
        hook: str,
        attached: int,
        only_processes: bool,
        say: int,
        timed_trial: bool = False,
    ) -> MonitorSettings:
        """Return the settings for these options, or for options that hold more than these."""
        known = {field.name: getattr(options, field.name) for field in fields(MonitorOptions)}
        return cls(
            **known,
            hook=hook,
            attached=attached,
            only_processes=only_processes,
            say=say,
            timed_trial=timed_trial,
        )
