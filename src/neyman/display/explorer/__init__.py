"""The explorer: one local page on which to move the noise and see what an attacker gains.

`server` serves it to one browser on this machine. `answers` gives its numbers, sentences, and data
of charts, and `plan_desk` those of a plan, in the process of `worker`; `curve_outline` bounds a
curve at all levels at once. In `static`, `charts.js` draws the figures, also those of a release's
report; `controls.js` has what can be moved, `shares.js` the table of shares, `notices.js` the
notices, and `explore.js` the page. These know neither HTTP nor a notebook: `http_link.js` asks the
server, and `widget.js` asks through the widget of `widget`. `answering` answers both.
"""
