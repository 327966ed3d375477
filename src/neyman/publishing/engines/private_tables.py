"""Define a base class for results about private rows, whose printed form begins with a notice."""

from __future__ import annotations

NOTICE = "PRIVATE: this describes private rows. It may not be shared or published."


class Private:
    """Make the printed form of a dataclass begin with a notice that its values are private."""

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"<{NOTICE} {type(self).__name__}({fields})>"
