from __future__ import annotations

import io
import json
from pathlib import Path

from msgspec.structs import replace
from perfwrap import units
from perfwrap.experiments.edits import Edit
from perfwrap.experiments.judge import Row
from perfwrap.experiments.plan import BASELINE, Planned
from perfwrap.experiments.reading import Reading
from perfwrap.experiments.runner import Settings
from perfwrap.experiments.statistics import Ratio
from perfwrap.experiments.trial import BatchSize, Run, Trial
from perfwrap.experiments.variants import parse
from perfwrap.experiments.written import Written
from perfwrap.reports import trial_json
from perfwrap.reports.terminal import trial_text as trial_report
from perfwrap.reports.terminal.page import Page

DIFF = (
    "--- a/train.py\n+++ b/train.py\n@@ -1,1 +1,1 @@\n"
    "-loader = DataLoader(d)\n+loader = DataLoader(d, num_workers=2)\n"
)
BASE = Row(
    BASELINE,
    "fix",
    "measured",
    "not measured",
    median_ns=10_123_456,
    samples_per_s=12_345.6,
    loss=0.123456,
    runs=3,
)
GAIN = Row(
    "workers=2",
    "fix",
    "measured",
    "gain",
    median_ns=5_000_000,
    samples_per_s=24_000,
    ratio=Ratio(0.5, 0.45, 0.55),
    loss=0.123,
    rule="data_loader_single_process",
    predicted=(0.6, 0.7),
    edit=Edit(DIFF),
    skipped_writes=3,
)
NOISE = Row("set-to-none", "fix", "measured", "noise", ratio=Ratio(1.0, 0.97, 1.03), median_ns=1e7)
CEILING = Row(
    "cached-batch+no-validation", "ceiling", "measured", "gain", ratio=Ratio(0.1, 0.09, 0.11), median_ns=1e6
)
CRASHED = Row(
    "compile=reduce-overhead", "numerics", "crashed", "not measured", "exit code 1: no compiler found."
)
ODD = Row(
    "bf16",
    "numerics",
    "measured",
    "slower",
    ratio=Ratio(1.5, 1.4, 1.6),
    loss=float("nan"),
    loss_warning="the loss is NaN",
)


class Silent:
    def says(self, text: str) -> None: ...

    def begins(self, name: str, number: int) -> None: ...
    def ticks(self, seconds: float) -> None: ...
    def ends(self, run: Run) -> None: ...

    def stops(self) -> None: ...


def trial(*rows: Row, status: str = "measured") -> Trial:
    made = Trial(["/usr/bin/python", "train.py", "--name", "a b"], Path("/tries/1"), Settings(), Silent())
    made.runs = [Run(BASELINE, Path("/tries/1/01"), Reading(status), 1.0)]  # type: ignore[arg-type]
    made.planned = [Planned(parse(row.name)) for row in rows]
    return made


def drawn(*rows: Row, written: Written = Written(), made: Trial | None = None) -> str:  # noqa: B008
    page = Page(io.StringIO(), 80)
    trial_report.draw(made or trial(*rows), (BASE, *rows), written, page)
    return page.text()


def flowed(text: str) -> str:
    return " ".join(text.split())


def test_each_row_says_what_it_was_worth_within_eighty_columns() -> None:
    text = drawn(GAIN, NOISE, CEILING, CRASHED, ODD)
    assert max(map(len, text.splitlines())) <= 80
    lines = {line.split()[0]: line for line in text.splitlines() if line.startswith("  ")}
    assert "0.50 (0.45 to 0.55)" in lines["workers=2"] and lines["workers=2"].endswith("2x faster")
    assert lines["set-to-none"].endswith("noise")
    assert "1.5x slower" in text
    assert "bf16: the loss is NaN." in flowed(text)
    assert "compile=reduce-overhead: crashed, exit code 1: no compiler found." in flowed(text)


def test_the_best_fix_is_named_with_its_edit_and_its_prediction() -> None:
    text = drawn(GAIN, CEILING)
    assert "Best: workers=2, 1.8x to 2.2x faster (step time 45 to 55 % of today's)." in flowed(text)
    assert "    +loader = DataLoader(d, num_workers=2)" in text
    assert "predicted a ratio of 0.60 to 0.70, measured 0.50 (faster than predicted)." in flowed(text)
    assert "cached-batch+no-validation: changes the result of the program: an upper bound" in flowed(text)
    assert "3 checkpoints per run suppressed" in flowed(text)


def test_noise_is_called_noise_and_nothing_is_advised() -> None:
    text = flowed(drawn(NOISE))
    assert "No change was faster by more than the noise of this machine." in text
    assert "Best" not in text


def test_what_no_fix_did_is_not_reported_as_one() -> None:
    assert "No fix was faster, but cached-batch+no-validation was" in flowed(drawn(CEILING))


def test_a_trial_without_repeats_warns() -> None:
    once = Row("workers=2", "fix", "measured", "not repeated", ratio=Ratio(0.5, None, None))
    assert "the noise between runs is unknown" in flowed(drawn(once))


def test_files_that_were_written_are_named_and_many_counted() -> None:
    many = Written(tuple(f"log-{number}.txt" for number in range(9)))
    text = flowed(drawn(NOISE, written=many))
    assert "log-0.txt" in text and "and 4 more." in text
    assert "too many files" in flowed(drawn(NOISE, written=Written(unknown=True)))


def test_nothing_to_try_and_a_failed_baseline_are_said() -> None:
    assert "suggests no change to try" in flowed(drawn())
    assert "could not be measured" in flowed(drawn(made=trial(status="crashed")))


def test_the_largest_batch_is_reported_with_its_margin() -> None:
    made = trial()
    made.found = BatchSize(1024, 1088, "out of memory: CUDA out of memory", 921)
    text = flowed(drawn(made=made))
    assert "Batch size 1,024 fits, 1,088 does not" in text
    assert "Use 921 at most" in text


def test_a_long_interval_moves_no_column() -> None:
    text = drawn(replace(GAIN, ratio=Ratio(0.00342, 0.0012, 0.0104)), NOISE)
    table = [line for line in text.splitlines() if line.startswith(("  workers", "  set-to-none"))]
    assert table[0].index(units.times(1 / 0.00342)) == table[1].index("noise")
    assert max(map(len, text.splitlines())) <= 80


def test_memory_has_a_column_where_it_was_sampled() -> None:
    text = drawn(replace(GAIN, peak_bytes=3 * 2**30))
    assert "3 GiB" in text and "memory" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_document_holds_every_row_and_is_strict_json(tmp_path: Path) -> None:
    made = trial(GAIN, CRASHED, ODD)
    document = trial_json.section(made, (BASE, GAIN, CRASHED, ODD), Written(("log.txt",)))
    trial_json.write(document, tmp_path)
    read = json.loads((tmp_path / "try.json").read_text(), parse_constant=lambda word: 1 / 0)
    assert read == document
    assert read["best"] == "workers=2"
    assert read["written"] == ["log.txt"]
    first = read["variants"][0]
    assert (first["ratio"], first["low"], first["high"]) == (0.5, 0.45, 0.55)
    assert first["prediction_error"] == -0.1
    assert first["edit"] == DIFF.rstrip("\n")
    assert read["variants"][2]["loss"] is None
    assert [path.name for path in tmp_path.iterdir()] == ["try.json"]
