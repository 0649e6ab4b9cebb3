"""Run a command unchanged, record it, and report what slows it down."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial

from perfwrap import monitor_options
from perfwrap.commands import reading_half
from perfwrap.commands.options import option_values, stacks, watching
from perfwrap.commands.options import recording_options as record
from perfwrap.commands.options.output_options import Ignore, Price, Rules
from perfwrap.errors import PerfwrapError
from perfwrap.experiments.changes import checked
from perfwrap.launch import ncu as ncu_tool
from perfwrap.launch import nsys as nsys_tool
from perfwrap.launch import options as defaults
from perfwrap.launch import overlay_file, prefixes, session
from perfwrap.launch.options import Options, Trial
from perfwrap.shown_text import say


def run(
    command: record.Command = None,
    out: record.Out = None,
    name: record.Name = "",
    tags: record.Tags = "",
    no_report: record.NoReport = False,
    live: record.LiveView = False,
    rules: Rules = "",
    ignore: Ignore = "",
    price: Price = "",
    max_overhead: record.MaxOverhead = f"{defaults.DEFAULT_MAX_OVERHEAD:.1%}",
    no_py_spy: record.NoPySpy = False,
    py_spy: record.PySpy = False,
    py_spy_rate: record.PySpyRate = monitor_options.DEFAULT_PY_SPY_HZ,
    py_spy_native: record.PySpyNative = False,
    sample: record.Sample = 0.0,
    window: record.Window = defaults.DEFAULT_WINDOW,
    no_window: record.NoWindow = False,
    window_detail: record.WindowDetail = "",
    window_ranks: record.WindowRanks = "0",
    inspect: record.Inspect = False,
    nsys: record.Nsys = False,
    nsys_options: record.NsysOptions = "",
    ncu: record.Ncu = False,
    ncu_options: record.NcuOptions = "",
    ncu_from: record.NcuFrom = None,
    nvtx: record.Nvtx = False,
    no_monitors: record.NoMonitors = False,
    rate: record.Rate = monitor_options.DEFAULT_RATE_HZ,
    stall_after: record.StallAfter = monitor_options.DEFAULT_STALL_SECONDS,
    kill_on_stall: record.KillOnStall = False,
    kill_grace: record.KillGrace = monitor_options.DEFAULT_GRACE_SECONDS,
    metrics_port: record.MetricsPort = 0,
    metrics_address: record.MetricsAddress = monitor_options.LOOPBACK,
    metrics_token_file: record.MetricsTokenFile = None,
    run_id: record.RunId = "",
    budget: record.Budget = monitor_options.DEFAULT_BUDGET_MIB,
    change: record.Change = None,
    trial_steps: record.TrialSteps = 0,
    trial_warm_up: record.TrialWarmUp = "auto",
    trial_precision: record.TrialPrecision = 0.02,
    trial_seconds: record.TrialSeconds = 0.0,
    trial_values: record.TrialValues = None,
    trial_perturbation: record.TrialPerturbation = 0,
    overlay: record.Overlay = None,
    allow_writes: record.AllowWrites = False,
) -> None:
    """Run a command unchanged, record it, and report what slows it down.

    CMD is any command: python train.py, python -m package, torchrun …, accelerate launch …, a shell script.
    Its input, output, signals and exit code stay the same. perfwrap prints to standard error.
    """
    if not command:
        raise PerfwrapError("No command was given.", "For example: perfwrap run -- python train.py")
    options = Options(
        out=out,
        name=name.strip(),
        tags=tuple(dict.fromkeys(option_values.words(tags))),
        run_id=run_id.strip(),
        nvtx=nvtx,
        monitors=not no_monitors,
        rate_hz=rate,
        report=not no_report,
        live=live,
        sample_hz=sample,
        max_overhead=option_values.percentage("--max-overhead", max_overhead, 0.1, 100, "2%"),
        # A trial's steps must all be alike.
        window="" if no_window or trial_steps else option_values.window(window),
        window_detail=option_values.window_details(window_detail),
        window_ranks=option_values.choice("--window-ranks", window_ranks, ("0", "all")),
        budget_bytes=budget * monitor_options.MEBIBYTE,
        trial=Trial(
            checked(change or ()),
            trial_steps,
            option_values.warm_up("--trial-warm-up", trial_warm_up),
            trial_precision,
            allow_writes,
            trial_values,
            trial_perturbation,
            trial_seconds,
        ),
        overlay=overlay_file.read(overlay) if overlay is not None else (),
        inspect=inspect,
        nsys=option_values.tool_options(nsys_options, nsys_tool.OURS) if nsys else None,
        ncu=option_values.tool_options(ncu_options, ncu_tool.OURS) if ncu else None,
    )
    options = watching.with_stalls(options, stall_after, kill_on_stall, kill_grace)
    options = watching.with_metrics(options, metrics_port, metrics_address, metrics_token_file)
    if py_spy or py_spy_native:
        options = stacks.with_py_spy(options, py_spy_rate, py_spy_native, say)
    elif not sample and not no_py_spy:
        options = stacks.with_light_sampling(options)
    if options.ncu is not None and not ncu_tool.names_kernels(options.ncu):
        prefixes.choose(options, os.environ)  # Reports first that ncu is missing.
        options = replace(options, ncu_kernels=reading_half.slowest_kernels(ncu_from))
    reading_half.check_rule_names(rules, ignore, price)
    report = partial(reading_half.print_report, rules=rules, ignore=ignore, price=price)
    session.run(command, options, say, report)
