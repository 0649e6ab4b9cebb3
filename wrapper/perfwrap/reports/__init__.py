"""Drawings of a timeline and its diagnosis.

terminal.py for people, html/ for people with a browser, json.py for programs, difference.py for two runs side by
side, explanation.py for rules; page.py, excerpt.py and machine.py are what reports for terminals are made of.
"""
