"""Print the skill file that teaches a language-model agent to use perfwrap."""

from __future__ import annotations

from pathlib import Path

from perfwrap import agents
from perfwrap.commands.options.output_options import put

SKILL = Path(agents.__file__).with_name("SKILL.md")


def skill() -> None:
    """Print a skill file for language-model agents.

    For example: mkdir -p .claude/skills/perfwrap && perfwrap skill > .claude/skills/perfwrap/SKILL.md. Other agents
    take the same text in their instructions.
    """
    put(SKILL.read_text(encoding="utf-8"))
