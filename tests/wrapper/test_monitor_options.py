"""The launcher's options reach the monitors' process as they are."""

from __future__ import annotations

import json
from dataclasses import asdict

from perfwrap.launch.options import Options
from perfwrap.monitor_options import MonitorSettings


def test_options_reach_the_process_with_what_the_launcher_adds() -> None:
    options = Options(name="mine", rate_hz=2.5, py_spy="/a b/py-spy", kill_on_stall=True, metrics_port=9100)
    settings = MonitorSettings.of(
        options, hook="/run/inject", attached=7, only_processes=True, say=5, timed_trial=True
    )
    assert MonitorSettings(**json.loads(json.dumps(asdict(settings)))) == settings
    assert (settings.rate_hz, settings.py_spy, settings.kill_on_stall) == (2.5, "/a b/py-spy", True)
    assert (settings.hook, settings.attached, settings.only_processes, settings.say) == (
        "/run/inject",
        7,
        True,
        5,
    )
    assert not hasattr(settings, "name")


def test_without_options_both_have_the_same_defaults() -> None:
    settings = MonitorSettings.of(Options(), hook="", attached=0, only_processes=False, say=-1)
    assert settings == MonitorSettings()
