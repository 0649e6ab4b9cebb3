"""Runs the unmodified program repeatedly, with one injected change at a time, and measures the gain of each.

changes.py and variants.py (what can be tried), plan.py (what is tried), runner.py (one new run), reading.py (its
recording), written.py (files that the program wrote), trial.py (all runs, alternating), batch_size.py (the largest
batch), standstills.py and statistics.py (ratios and their intervals), judge.py (their meaning), edits.py with
arguments.py and snippets.py (the edit to make).
"""
