"""The journal of this process: its format is in ``journal_format.py``, its records are written by ``journal.py``."""
