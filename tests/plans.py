"""How most tests make a release: without its report, which takes longer than the tables."""

from __future__ import annotations

from functools import partial

from neyman.api import run

release = partial(run, pages={})
