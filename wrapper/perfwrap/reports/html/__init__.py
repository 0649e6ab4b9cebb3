"""The report as one HTML file that works offline.

page.py puts the file together from assets/ and the page's data; document.py says what the data are. One file for
each part of the page: summary.py (the first screen), account.py (steps and parts over time), machine.py (samples
over time), marks.py (instants over time), lanes.py (chosen steps thread by thread), flames.py (stacks by what the
GPU was doing), ranks.py (step time by rank), tables.py (facts and coverage). encoding.py packs numbers and texts.

Whatever the program, its files or its environment wrote is hostile here. It reaches the page as JSON only, and the
page's scripts show it as text only.
"""
