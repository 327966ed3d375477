"""Provide the explorer: a local page to change the noise and see what an attacker gains.

`server` serves the page to one browser on this machine, and `widget` shows it in a notebook. Both
ask `worker`. Its process runs `answers` (numbers, sentences, and chart data), or `plan_desk` for a
plan. `curve_outline` bounds a curve at all levels at once. In `static`, `charts.js` draws figures,
also for a release's report. `controls.js`, `shares.js`, `notices.js`, and `explore.js` are the
page. `http_link.js` connects the page to the server, and `widget.js` to the widget.
"""
