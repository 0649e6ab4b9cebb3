"""Runs the unmodified program again and again, with one injected change at a time, and measures what each is worth.

changes.py and variants.py (what can be tried), plan.py (what is tried), runner.py (one fresh run), reading.py (what it
recorded), written.py (what the program wrote), trial.py (all runs, in turns), batch_size.py (the largest batch),
standstills.py and statistics.py (ratios and their intervals), judge.py (what they mean), edits.py with arguments.py
and snippets.py (the edit to make).
"""
