"""Record a command as ``perfwrap run`` does, in an environment that has PyTorch and lacks what the commands need.

``record.py FOLDER OPTIONS -- COMMAND...``: OPTIONS is a JSON object with fields of ``perfwrap.launch.options.Options``.
The launcher, the recorder and the monitors need the standard library, psutil and pynvml; only reading needs more.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def wrap(command: list[str], folder: Path, **options: object) -> list[str]:
    """Return the command that records another one into a folder, with fields of Options."""
    given = {"report": False, **options}
    return [sys.executable, str(HERE / "record.py"), str(folder), json.dumps(given), "--", *command]


def main() -> None:
    """Record the command and end as it does."""
    # The monitors leave out the first entry.
    sys.path.insert(1, str(HERE.parents[1] / "wrapper"))
    from perfwrap.launch import session
    from perfwrap.launch.options import Options

    folder, given, _, *command = sys.argv[1:]
    options = {
        key: tuple(value) if isinstance(value, list) else value for key, value in json.loads(given).items()
    }
    session.run(
        command,
        Options(out=Path(folder), **options),
        lambda line: print(line, file=sys.stderr, flush=True),
        lambda path: None,
    )


if __name__ == "__main__":
    main()
