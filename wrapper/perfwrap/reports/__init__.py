"""Drawings of a timeline and its diagnosis.

terminal.py for people, html/ for people with a browser, json.py for programs, difference.py for two runs side by
side, explanation.py for rules; page.py, excerpt.py, machine.py and memory_table.py are parts of reports for
terminals. markdown.py is for pull requests, workflow.py for GitHub's annotations, comparison.py, comparison_json.py and
comparison_markdown.py for several runs, junit.py for what a check came to, trace.py for ui.perfetto.dev, trial_text.py
and trial_json.py for what was tried; waiting.py is the bar of a long wait.
"""
