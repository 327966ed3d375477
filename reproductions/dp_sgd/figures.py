"""The figures of the training page, each as the text of an SVG file."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reproductions.dp_sgd.course import Course, Moment
from reproductions.dp_sgd.last_iterate import Accounted
from reproductions.panels import Axis, Label, Line, Panel, figure

__all__ = ["course_figure", "iterates_figure"]

Point = tuple[float, float]

EPOCHS = Axis(
    "epochs", tuple((float(k), str(k)) for k in (1, 2, 5, 10, 20, 50, 100)), logarithmic=True, few=3
)
EPSILON = Axis(
    "ε at δ = 10⁻⁵",
    tuple((k, f"{k:g}") for k in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)),
    logarithmic=True,
    few=2,
)


def course_figure(courses: Sequence[Course]) -> str:
    """Epsilon over the epochs of each training, the last one large and first."""
    panels = []
    for course in (courses[-1], *courses[:-1]):
        large = course is courses[-1]

        def line(
            of: Callable[[Moment], float],
            kind: str,
            text: str,
            at: Point,
            course: Course = course,
            large: bool = large,
            dashed: bool = False,
        ) -> Line:
            points = [(float(m.epochs), of(m)) for m in course.moments]
            return Line(points, kind, Label(text, at) if large else None, dashed)

        panels.append(
            Panel(
                f"σ = {float(course.training.sigma):g}",
                f"{float(course.training.epochs):g} epochs",
                (
                    line(lambda m: m.renyi.upper, "fourth", "Renyi, best order", (1.15, 10.6)),
                    line(lambda m: m.limit.value, "bound", "central limit", (3.4, 2.1)),
                    line(
                        lambda m: m.edgeworth.value, "other", "Edgeworth", (2.3, 0.6), dashed=True
                    ),
                    line(lambda m: m.exact.upper, "exact", "exact", (1.15, 4.1)),
                ),
            )
        )
    return figure(
        panels, EPOCHS, EPSILON, title="Epsilon over the epochs of six trainings", columns=5
    )


def iterates_figure(answer: Sequence[tuple[int, Accounted]]) -> str:
    """Epsilon over the epochs of one descent, accounted for in three ways."""
    x = Axis("epochs", tuple((40.0 * k, str(40 * k)) for k in range(6)))
    y = Axis("ε at δ = 10⁻⁵", tuple((20.0 * k, str(20 * k)) for k in range(6)))

    def line(of: Callable[[Accounted], float], kind: str, text: str, at: Point) -> Line:
        return Line([(float(e), of(t)) for e, t in answer], kind, Label(text, at))

    panel = Panel(
        "Noisy cyclic gradient descent",
        "",
        (
            line(lambda t: t.composition.upper, "bound", "every iterate: composition", (22, 68)),
            line(lambda t: t.renyi.upper, "fourth", "last iterate: Renyi", (110, 14)),
            line(lambda t: t.f_dp.upper, "exact", "last iterate: f-DP", (110, 1.8)),
        ),
    )
    return figure([panel], x, y, columns=1, title="Epsilon of one descent in three ways")
