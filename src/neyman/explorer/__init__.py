"""The explorer: one local page on which to move the noise and see what an attacker gains.

`server` serves it to one browser on this machine, `answers` works out what has no closed form, in
the process of `worker`; `outline` bounds a whole curve at once. `numbers.js` has the closed forms,
`words.js` the rounding and sentences of `neyman.semantics.sentences`, `charts.js` the figures,
which the report of a release shares; `dials.js` has what can be moved, `telling.js` the notices,
`explore.js` the page.
"""
