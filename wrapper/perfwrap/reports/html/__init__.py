"""The report as one HTML file that works offline.

html_page.py puts the file together from assets/ and the page's data; document.py says what the data are. One file for
each part of the page: summary.py (the first screen), account_chart.py (steps and parts over time), machine_charts.py
(samples over time), marks.py (instants over time), lanes.py (chosen steps thread by thread), flames.py (stacks by what
the GPU was doing), line_by_line.py (one step by lines; its modules are in module_tree.py), rank_chart.py (step time by
rank), tables.py (facts and coverage). encoding.py packs numbers and texts.

fix_page.py is a page of its own, without scripts, for `perfwrap fix`: it escapes each text.

Whatever the program, its files or its environment wrote is hostile here. It reaches the report as JSON only, and the
page's scripts show it as text only.
"""
