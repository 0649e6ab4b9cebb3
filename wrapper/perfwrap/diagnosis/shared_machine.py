"""Adds to a verdict that other programs took CPU time from the training."""

from __future__ import annotations

from dataclasses import replace

from perfwrap import units
from perfwrap.diagnosis.model import Verdict
from perfwrap.measures.account.loop_figures import trains_on_gpu
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.host.cores_taken import OtherPrograms, find_other_programs
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import find_trainers


def on_shared_machine(evidence: Evidence, verdict: Verdict) -> Verdict:
    """Return the verdict; if other programs took cores from the training, its sentence says so."""
    found = {
        trainer.host: others
        for trainer in evidence.get(find_trainers)
        if evidence.get(find_steps, trainer).steady
        and (others := evidence.get(find_other_programs, trainer)) is not None
    }
    if not found:
        return verdict
    host = max(found, key=lambda name: found[name].share)
    hosts = {trainer.host for trainer in evidence.get(find_trainers)}
    where = f" of {host}" if len(hosts) > 1 else ""
    # What the GPU does takes no longer.
    on_gpu = any(trains_on_gpu(evidence, trainer) for trainer in evidence.get(find_trainers))
    return replace(verdict, sentence=f"{verdict.sentence} {_sentence(found[host], where, on_gpu)}")


def _sentence(others: OtherPrograms, where: str, on_gpu: bool) -> str:
    """Return what other programs used, and what follows from it."""
    what = (
        f"the CPU{where}"
        if others.all_cores
        else f"the {units.counted(others.of_cores, 'core')}{where} that the training may use"
    )
    named = ", ".join(f"{name} {units.share(share)}" for name, share in others.programs)
    programs = f" ({named})" if named else ""
    takes = "may take" if on_gpu else "take"
    return (
        f"Other programs used {units.share(others.share)} of {what} during the training loop{programs}, so its steps "
        f"{takes} longer than on a free machine."
    )
