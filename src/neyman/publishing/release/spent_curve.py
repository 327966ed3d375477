"""Compose what a ledger's account has spent."""

from __future__ import annotations

import json
from collections import Counter
from functools import reduce
from operator import add
from typing import Any

from neyman.ledger.ledger import Ledger
from neyman.ledger.records import Account
from neyman.publishing.release.receipt import composed

_MOST_ENTRIES, _MOST_LISTS = 20_000, 60
_DELTA, _LEVEL = 1e-6, 0.05


def spent_curve(ledger: Ledger, account: Account) -> dict[str, Any]:
    """Return epsilon and power of all charges to the most charged part, or why there are none.

    Of a population, they include the most charged part of each edition.
    """
    if not account.entries:
        return {"why": "nothing is spent"}
    if account.entries > _MOST_ENTRIES:
        return {"why": f"more than {_MOST_ENTRIES} entries are not composed"}
    part, *_ = parts = [
        (one.dataset, max(one.parts, key=lambda p: p.spent).name if one.parts else "")
        for one in (account, *map(ledger.account, account.editions))
    ]
    lists = Counter(
        json.dumps(entry.mechanisms, sort_keys=True)
        for dataset, most in parts
        for entry in ledger.entries(dataset)
        if entry.state != "void" and entry.part in ("", most)
    )
    if len(lists) > _MOST_LISTS:
        return {"why": f"more than {_MOST_LISTS} different plans are not composed"}
    try:
        mechanisms = (
            composed((one["mechanism"], one["count"]) for one in json.loads(text)) * times
            for text, times in lists.items()
        )
        curve = reduce(add, mechanisms).tradeoff()
        return {
            "part": part[1],
            "delta": _DELTA,
            "epsilon": curve.epsilon(delta=_DELTA),
            "level": _LEVEL,
            "power": curve.power(level=_LEVEL),
        }
    except Exception as error:  # stored by a foreign program
        why = " ".join(str(error).split())[:80]
        return {"why": f"the mechanisms stored cannot be composed ({type(error).__name__}: {why})"}
