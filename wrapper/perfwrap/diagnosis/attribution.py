"""Assign each segment of the account to the first finding that claims it, so that no time counts twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from perfwrap import units
from perfwrap.measures.account.account import Account
from perfwrap.rules.model import MIN_REPORTED_SHARE, MINOR_SHARE, Finding, Option

CLAIMED = {"start": pl.Int64, "end": pl.Int64, "rule": pl.String}


def resolve_overlaps(
    account: Account, findings: list[Finding]
) -> tuple[list[Finding], dict[str, str], pl.DataFrame]:
    """Give each segment of the account to the first finding that claims it.

    Returns the findings with their remaining shares, without those whose remaining share is too small; for each rule of
    those, the rule that took the time; and the claimed segments.
    """
    lengths = account.segments["end"] - account.segments["start"]
    owner = pl.Series([-1] * lengths.len(), dtype=pl.Int64)
    kept: list[Finding] = []
    dropped: dict[str, str] = {}
    for number, finding in enumerate(findings):
        if finding.claims is None or account.total_ns == 0:
            kept.append(finding)
            continue
        claimed = account.segments.select(finding.claims.fill_null(False).alias("claimed"))["claimed"]
        taken = claimed & (owner >= 0)
        lost = int(lengths.filter(taken).sum()) / account.total_ns
        left = finding.share - lost
        if finding.informational and lost >= MINOR_SHARE:
            # The model is not the limit if there is a problem inside it; a line that only this finding names is hot.
            finding = replace(finding, verdict=None)
            left = left if _names_more(finding, kept) else 0.0
        if lost and (left < MIN_REPORTED_SHARE or not (claimed & ~taken).any()) and not finding.health:
            dropped[finding.rule] = findings[_main_owner(owner, lengths, taken)].rule
            continue
        first = findings[_main_owner(owner, lengths, taken)].rule if lost else ""
        owner = owner.set(claimed & ~taken, number)
        kept.append(_reduced(finding, lost, first) if lost else finding)
    return kept, dropped, _claimed(account, owner, [finding.rule for finding in findings])


def _main_owner(owner: pl.Series, lengths: pl.Series, taken: pl.Series) -> int:
    """Return the number of the finding that owns most of the taken time; the first of several."""
    times = (
        pl.DataFrame({"owner": owner, "time": lengths}).filter(taken).group_by("owner").agg(pl.sum("time"))
    )
    return int(times.sort(["time", "owner"], descending=[True, False])["owner"][0])


def _names_more(finding: Finding, others: Sequence[Finding]) -> bool:
    """Return whether a finding names a line in a function that no other finding names."""
    named = {(other.location.file, other.location.function) for other in others if other.location}
    return finding.location is not None and (finding.location.file, finding.location.function) not in named


def _claimed(account: Account, owner: pl.Series, rules: list[str]) -> pl.DataFrame:
    """Return the claimed segments with the rule that claims each; adjacent segments of one rule are joined."""
    names = owner.replace_strict(dict(enumerate(rules)), default=None, return_dtype=pl.String)
    rows = account.segments.select("start", "end", names.alias("rule")).filter(pl.col("rule").is_not_null())
    continues = (pl.col("start") == pl.col("end").shift(1)) & (pl.col("rule") == pl.col("rule").shift(1))
    group = (~continues.fill_null(False)).cum_sum().alias("group")
    joined = rows.with_columns(group).group_by("group", maintain_order=True)
    return joined.agg(pl.col("start").first(), pl.col("end").last(), pl.col("rule").first()).drop("group")


def _reduced(finding: Finding, lost: float, first: str) -> Finding:
    """Return the finding without the share that another rule has already claimed."""
    options = tuple(_less(option, lost) for option in finding.options)
    note = f"{units.share(finding.share)} including the time that {first} explains."
    share = max(0.0, finding.share - lost)
    return replace(finding, share=share, options=options, evidence=(*finding.evidence, note))


def _less(option: Option, lost: float) -> Option:
    """Return an option that gains less by this share of the loop."""
    best, worst = option.saving
    return replace(option, saving=(min(1.0, best + lost), min(1.0, worst + lost)))
