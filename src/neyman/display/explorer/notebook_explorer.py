"""Provide `neyman.explore`, the explorer in a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from neyman.numerics import check

if TYPE_CHECKING:
    from neyman.display.explorer.widget import ExplorerWidget
    from neyman.publishing.plan.plan import Plan


def explore(of: Plan | str | Path | None = None) -> ExplorerWidget:
    """Return the explorer as a widget, to change the noise and read back the chosen plan.

    The widget needs ``pip install 'neyman[notebook]'``. It shows certified upper bounds, like
    ``neyman explore``, and loads nothing from a network. Its traits ``level``, ``prior``,
    ``delta``, ``rho``, and ``weights`` follow the screen, and the screen follows them. ``shares``
    are the exact shares, and ``plan`` is the plan on the screen.

    Args:
        of: a plan, the path of a plan or receipt, or None for mechanisms and guarantees.

    Returns:
        A widget. A notebook shows it if it is the last value of a cell.

    Raises:
        ValueError: the file is neither a plan nor a receipt.
        ModuleNotFoundError: anywidget is not installed.

    Example:
        >>> widget = ny.explore(plan)        # doctest: +SKIP
        >>> widget.level = 0.01              # doctest: +SKIP
        >>> widget.plan.errors()             # doctest: +SKIP
    """
    # Here, because importing the name `neyman.explore` needs no extra.
    from neyman.display.explorer.widget import ExplorerWidget
    from neyman.publishing.plan.plan import Plan

    if isinstance(of, Plan):
        return ExplorerWidget(of.canonical())
    check.no_evidence("of", of)
    if not isinstance(of, str | Path | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"of = {of!r} must be a plan, or the path of a plan.toml or receipt.json")
    return ExplorerWidget(None if of is None else str(of))
