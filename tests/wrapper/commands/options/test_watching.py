from __future__ import annotations

from pathlib import Path

import pytest
from perfwrap.commands.options.watching import with_metrics, with_stalls
from perfwrap.errors import PerfwrapError
from perfwrap.launch.options import Options
from perfwrap.monitor_options import LOOPBACK


def test_without_a_port_there_are_no_metrics() -> None:
    assert with_metrics(Options(), 0, "anything", None) == Options()


def test_another_address_than_loopback_wants_a_token_that_is_one(tmp_path: Path) -> None:
    assert with_metrics(Options(), 9100, "127.0.0.2", None).metrics_port == 9100
    with pytest.raises(PerfwrapError, match="could read the metrics"):
        with_metrics(Options(), 9100, "0.0.0.0", None)
    token = tmp_path / "token"
    with pytest.raises(PerfwrapError, match="Cannot read the token"):
        with_metrics(Options(), 9100, "0.0.0.0", token)
    token.write_text("\n")
    with pytest.raises(PerfwrapError, match="is empty"):
        with_metrics(Options(), 9100, "0.0.0.0", token)
    token.write_text("sesame")
    assert with_metrics(Options(), 9100, "0.0.0.0", token).metrics_token_file == str(token)


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(PerfwrapError, match="takes an IPv4 address"):
        with_metrics(Options(), 9100, "localhost", None)


def test_what_the_monitors_do_is_not_asked_of_a_run_without_them() -> None:
    unwatched = Options(monitors=False)
    with pytest.raises(PerfwrapError, match="the monitors serve the metrics"):
        with_metrics(unwatched, 9100, LOOPBACK, None)
    with pytest.raises(PerfwrapError, match="--no-monitors"):
        with_stalls(unwatched, 60.0, True, 30.0)
    with pytest.raises(PerfwrapError, match="--stall-after 0"):
        with_stalls(Options(), 0.0, True, 30.0)
    assert with_stalls(Options(), 5.0, True, 7.0).kill_grace_s == 7.0
