from __future__ import annotations

import json
import os
from typing import Any

from perfwrap.launch import host


def test_the_facts_can_be_written_down_and_fit_this_machine() -> None:
    facts = json.loads(json.dumps(host.facts()))
    assert facts["cores_usable"] == len(os.sched_getaffinity(0)) == len(facts["affinity"])
    assert facts["memory_total_bytes"] > 0
    assert isinstance(facts["gpus"], list)


def test_limits_are_those_of_the_control_groups(made_up: Any) -> None:
    top = made_up.version_2()
    made_up.write(top / "work/cpu.max", "150000 100000\n")
    made_up.write(top / "work/job/memory.max", "1073741824\n")
    facts = host.facts(made_up.root)
    assert facts["cpu_quota_cores"] == 1.5
    assert facts["memory_limit_bytes"] == 1 << 30


def test_no_limit_is_not_a_number(made_up: Any) -> None:
    facts = host.facts(made_up.root)
    assert facts["cpu_quota_cores"] is None
    assert facts["memory_limit_bytes"] is None
