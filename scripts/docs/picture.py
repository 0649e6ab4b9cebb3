"""Draw what a command prints as an SVG: the picture in the README is real output.

perfwrap demo --out runs/demo
python scripts/docs/picture.py docs/demo.svg perfwrap report runs/demo/slow
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS = 80


def main() -> None:
    """Run the command at 80 columns, in colour, and draw its output; the title is the command."""
    target, *command = sys.argv[1:]
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)}
    output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi(output.rstrip()))
    Path(target).write_text(
        console.export_svg(title="perfwrap run -- python train_digits.py"), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
