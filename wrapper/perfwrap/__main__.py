"""Makes ``python -m perfwrap`` the same as ``perfwrap``."""

from __future__ import annotations

from perfwrap.cli import main

if __name__ == "__main__":
    main()
