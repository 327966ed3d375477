"""Provide the explorer: a local page to change the noise and see what an attacker gains.

`server` serves the page to one browser on this machine. `answers` gives numbers, sentences, and
chart data. `plan_desk` gives them for a plan. Both run in the process of `worker`. `curve_outline`
bounds a curve at all levels at once. In `static`, `charts.js` draws the figures, also for a
release's report. `controls.js` has the controls, `shares.js` the table of shares, `notices.js` the
notices, and `explore.js` the page. These files use neither HTTP nor a notebook. `http_link.js` asks
the server, and `widget.js` asks through the widget of `widget`. `answering` answers both.
"""
