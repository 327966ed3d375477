"""Show the explorer as a notebook widget: the same page and answers, without a server.

The page's scripts run in a shadow root, one per view. Questions come as messages of the widget. A
process on the kernel's machine answers them. Nothing is loaded from a network.
"""

# Methods of anywidget have no types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import json
import re
from fractions import Fraction
from importlib import resources
from threading import Thread
from typing import TYPE_CHECKING, Any

from neyman.display.explorer.worker import Answering
from neyman.extras import require

require("Widgets", "anywidget")

import anywidget  # noqa: E402 - a missing extra is named first
import traitlets  # noqa: E402

if TYPE_CHECKING:
    from neyman.display.explorer.worker import Source
    from neyman.publishing.plan.plan import Plan

_SCRIPTS = ("charts", "controls", "notices", "shares", "explore")
_DARK = "@media (prefers-color-scheme: dark) {\n  :host {"
_LOCAL = " Nothing leaves this machine."


def _static(name: str) -> str:
    return resources.files("neyman").joinpath(name).read_text(encoding="utf-8")


def _page() -> str:
    """Return the page's body. A notebook has its own header and main part."""
    html = _static("display/explorer/static/explore.html")
    body = html[html.index('id="body">') + len('id="body">') : html.index("</body>")]
    body = re.sub(r"<(header|main|footer)>", r'<div class="\1">', body.replace(_LOCAL, ""))
    return re.sub(r"</(header|main|footer)>", "</div>", body)


def _style() -> str:
    """Return the page's styles for a shadow root, based on its own width and theme."""
    css = _static("display/report/static/page.css") + _static("display/explorer/static/explore.css")
    css = re.sub(r"(?<![\w.#-])(header|main|footer)(?![\w-])", r".\1", css)
    css = re.sub(r"^body \{", ".explorer {", css, flags=re.M).replace(":root", ":host")
    css = css.replace(_DARK, '@media all {\n  :host([data-theme="dark"]) {')
    css = re.sub(r"@media (\((?:min|max)-width)", r"@container \1", css)
    return (
        f"{css}\n:host {{ display: block; color-scheme: light; container-type: inline-size; }}"
        '\n:host([data-theme="dark"]) { color-scheme: dark; }\n'
    )


def _module() -> str:
    scripts = "\n".join(_static(f"display/explorer/static/{name}.js") for name in _SCRIPTS)
    start = _static("display/explorer/static/widget.js")
    return (
        f"const PAGE = {json.dumps(_page())};\nconst STYLE = {json.dumps(_style())};\n"
        f"const begin = (root, link) => {{\n{scripts}\n}};\n{start}"
    )


class ExplorerWidget(anywidget.AnyWidget):
    """Show the explorer in a notebook, with settings as traits that both sides can set.

    Make one with `neyman.explore`. Observe a trait with ``widget.observe(function, "level")``.

    Args:
        source: path of a plan or receipt, the sections of a plan, or None.

    Attributes:
        level: false positive rate, in [0.0001, 0.5].
        prior: prior probability of the claim, in [0.001, 0.999].
        delta: delta at which epsilon is reported, in [1e-15, 0.1].
        rho: zCDP budget of the plan on the screen; None for the plan's own.
        weights: share of each query in thousandths, in the order of `queries`; they sum to 1000.
        settings: every setting that differs from its first value, as in the page's address.
    """

    _esm = _module()
    _opening = traitlets.Dict().tag(sync=True)
    level = traitlets.Float(0.05, min=0.0001, max=0.5).tag(sync=True)
    prior = traitlets.Float(0.5, min=0.001, max=0.999).tag(sync=True)
    delta = traitlets.Float(1e-6, min=1e-15, max=0.1).tag(sync=True)
    rho = traitlets.Float(None, allow_none=True).tag(sync=True)
    weights = traitlets.List(traitlets.Int()).tag(sync=True)
    settings = traitlets.Unicode("").tag(sync=True)

    def __init__(self, source: Source = None) -> None:
        self._source = source
        self._answering = Answering(source)
        opening = self._answering.opening
        plan = opening["plan"]
        self.queries: tuple[str, ...] = tuple(plan["queries"]) if plan else ()
        weights: list[int] = plan["weights"] if plan else []
        super().__init__(_opening=opening, weights=weights)
        self.on_msg(self._receive)

    @property
    def shares(self) -> dict[str, Fraction]:
        """Return the exact share of each query on the screen. They sum to 1."""
        return {q: Fraction(w, 1000) for q, w in zip(self.queries, self.weights, strict=True)}

    @property
    def plan(self) -> Plan:
        """Return the plan with the budget and the shares on the screen.

        Raises:
            ValueError: no plan is open.
        """
        from neyman.display.explorer.plan_desk import PlanDesk, opened_from

        if self._source is None:
            raise ValueError("no plan is open: use ny.explore(plan)")
        question = {"rho": self.rho, "weights": list(self.weights)}
        return PlanDesk(opened_from(self._source)).plan_with(question)

    def close(self) -> None:
        """Remove every view of the widget, and end the worker process."""
        # If the source could not be read, the widget has no process.
        if answering := getattr(self, "_answering", None):
            answering.close()
        super().close()

    @traitlets.validate("weights")
    def _check_weights(self, proposal: Any) -> list[int]:
        weights, count = list(proposal["value"]), len(self.queries)
        if (
            len(weights) != count
            or (weights and sum(weights) != 1000)
            or min(weights, default=1) < 1
        ):
            raise traitlets.TraitError(
                f"weights = {weights} must be {count} whole numbers of at least 1 that sum to 1000"
            )
        return weights

    def _receive(self, _: object, content: dict[str, Any], __: object) -> None:
        """Receive a message. The kernel stays free while an answer is computed."""
        if content["kind"] == "answer":
            Thread(target=self._answer, args=(content,), daemon=True).start()
        else:
            self.send({"id": content["id"], "reply": self._answering.checks})

    def _answer(self, asked: dict[str, Any]) -> None:
        reply = self._answering.reply(asked["page"], asked["number"], asked["question"])
        self.send({"id": asked["id"], "reply": reply})
