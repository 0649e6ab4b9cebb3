"""The options of the commands that record, with their help texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

COMMON = "Common options"
MONITORS = "Monitors of host and GPU"
STACKS = "Stack sampling"
PROFILER = "PyTorch profiler"
NVIDIA = "NVIDIA profilers"
STALLS = "Stalls"
METRICS = "Prometheus metrics"
OTHER = "Other options"

Command: TypeAlias = Annotated[list[str] | None, typer.Argument(metavar="[--] CMD...", show_default=False)]

Out: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder for the run; must be new or empty.",
        show_default="perfwrap-runs/<UTC time>-<name>",
        rich_help_panel=COMMON,
    ),
]
Name: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Name of the run; other commands accept it.",
        show_default=False,
        rich_help_panel=COMMON,
    ),
]
Tags: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="WORDS",
        help="Tags of the run for `perfwrap list --tag`, comma-separated.",
        show_default=False,
        rich_help_panel=COMMON,
    ),
]
NoReport: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--no-report",
        help="Only record; print the report later with `perfwrap report`.",
        rich_help_panel=COMMON,
    ),
]
LiveView: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--live",
        help="Show `perfwrap top` in this terminal; the output of the command must be redirected.",
        rich_help_panel=COMMON,
    ),
]
MaxOverhead: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="PERCENT",
        help="Maximum recording overhead, as a share of step time. Beyond it, steps are counted without details.",
        rich_help_panel=COMMON,
    ),
]

NoMonitors: TypeAlias = Annotated[
    bool, typer.Option("--no-monitors", help="Disable the monitors.", rich_help_panel=MONITORS)
]
Rate: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="HZ", min=0.1, max=100, help="Sampling rate of the monitors.", rich_help_panel=MONITORS
    ),
]

NoPySpy: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--no-py-spy",
        help="Disable the default py-spy sampling of the training process.",
        rich_help_panel=STACKS,
    ),
]
PySpy: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--py-spy", help="Sample all training processes with py-spy all the time.", rich_help_panel=STACKS
    ),
]
PySpyRate: TypeAlias = Annotated[
    float,
    typer.Option(metavar="HZ", min=10, max=200, help="Sampling rate of py-spy.", rich_help_panel=STACKS),
]
PySpyNative: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--py-spy-native",
        help="As --py-spy, with compiled code; py-spy pauses the program for each sample.",
        rich_help_panel=STACKS,
    ),
]
Sample: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="HZ",
        min=0,
        max=200,
        help="Sample stacks from a thread inside the program; 20 is enough, 0 disables it.",
        rich_help_panel=STACKS,
    ),
]

Window: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="STEPS",
        help="Steps to capture with torch.profiler: steady (3 steady steps), auto (as steady if a GPU is used, "
        "else none), 5@100 (5 steps after step 100), worst (the slowest of 100), kernels (only the GPU's work, "
        "20 steps or more, at less cost; not tried on a GPU yet).",
        rich_help_panel=PROFILER,
    ),
]
NoWindow: TypeAlias = Annotated[
    bool, typer.Option("--no-window", help="Do not use torch.profiler.", rich_help_panel=PROFILER)
]
WindowDetail: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="WORDS",
        show_default=False,
        help="Extra profiler data, comma-separated: shapes, stack, memory, flops. Each adds overhead.",
        rich_help_panel=PROFILER,
    ),
]
WindowRanks: TypeAlias = Annotated[
    str,
    typer.Option(metavar="RANKS", help="Ranks to profile: 0, or all ranks.", rich_help_panel=PROFILER),
]

Nsys: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--nsys",
        help="Capture some steps with Nsight Systems; --nsys='OPTIONS' adds options of nsys profile.",
        rich_help_panel=NVIDIA,
    ),
]
NsysOptions: TypeAlias = Annotated[str, typer.Option("--nsys-options", hidden=True)]
Ncu: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--ncu",
        help="Measure the slowest kernels of an earlier run with Nsight Compute; --ncu='OPTIONS' adds "
        "options of ncu.",
        rich_help_panel=NVIDIA,
    ),
]
NcuOptions: TypeAlias = Annotated[str, typer.Option("--ncu-options", hidden=True)]
NcuFrom: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN",
        help="Earlier run whose slowest kernels to measure.",
        show_default="the latest run with kernels",
        rich_help_panel=NVIDIA,
    ),
]
Nvtx: TypeAlias = Annotated[
    bool,
    typer.Option("--nvtx", help="Emit NVTX ranges even without an NVIDIA profiler.", rich_help_panel=NVIDIA),
]

StallAfter: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=0,
        help="Report a stall when no step ends for this long and for 5 times the slowest steps; 0 disables it.",
        rich_help_panel=STALLS,
    ),
]
KillOnStall: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--kill-on-stall", help="End a stalled command after writing its stacks.", rich_help_panel=STALLS
    ),
]
KillGrace: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=0,
        help="Time between SIGTERM and SIGKILL for a stalled command.",
        rich_help_panel=STALLS,
    ),
]

MetricsPort: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="PORT",
        min=0,
        max=65535,
        help="Serve metrics on this port while the command runs.",
        show_default=False,
        rich_help_panel=METRICS,
    ),
]
MetricsAddress: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS",
        help="Address to listen on. A non-loopback address requires --metrics-token-file.",
        rich_help_panel=METRICS,
    ),
]
MetricsTokenFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with the token that clients must send.",
        show_default=False,
        rich_help_panel=METRICS,
    ),
]

RunId: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="ID",
        envvar="PERFWRAP_RUN_ID",
        help="Join the run with this ID: all commands with the same ID, on all machines, make one run.",
        show_default="the job of Slurm, torchrun or MPI",
        rich_help_panel=OTHER,
    ),
]
Budget: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="MIB", min=1, max=4096, help="Maximum journal size per process.", rich_help_panel=OTHER
    ),
]

Inspect: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--inspect",
        help="Record each tensor operation of six steps, and report wasted work line by line.",
        rich_help_panel=PROFILER,
    ),
]

Change: TypeAlias = Annotated[list[str] | None, typer.Option("--change", hidden=True)]
TrialSteps: TypeAlias = Annotated[int, typer.Option("--trial-steps", min=0, hidden=True)]
TrialWarmUp: TypeAlias = Annotated[str, typer.Option("--trial-warm-up", hidden=True)]
TrialPrecision: TypeAlias = Annotated[float, typer.Option("--trial-precision", min=0, max=1, hidden=True)]
TrialSeconds: TypeAlias = Annotated[float, typer.Option("--trial-seconds", min=0, hidden=True)]
TrialValues: TypeAlias = Annotated[int | None, typer.Option("--trial-values", min=0, hidden=True)]
TrialPerturbation: TypeAlias = Annotated[int, typer.Option("--trial-perturbation", min=0, hidden=True)]
Overlay: TypeAlias = Annotated[Path | None, typer.Option("--overlay", hidden=True)]
AllowWrites: TypeAlias = Annotated[bool, typer.Option("--allow-writes", hidden=True)]
