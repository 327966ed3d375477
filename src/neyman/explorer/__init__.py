"""The explorer: one local page on which to move the noise and see what an attacker gains.

`server` serves it to one browser on this machine. `answers` gives its numbers, sentences, and data
of charts, and `plan_desk` those of a plan, in the process of `worker`; `curve_outline` bounds a
curve at all levels at once. In `static`, `charts.js` draws the figures, also those of a release's
report; `controls.js` has what can be moved, `notices.js` the notices, and `explore.js` the page.
"""
