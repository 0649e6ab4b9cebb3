"""Drawings of a timeline and its diagnosis.

terminal.py for people, json.py for programs, difference.py for two runs side by side, explanation.py for
rules, trial.py and trial_json.py for what was tried; page.py, excerpt.py and machine.py are what reports for
terminals are made of.
"""
