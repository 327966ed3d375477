"""What describes private rows, and says so wherever it is shown."""

from __future__ import annotations

NOTICE = "PRIVATE: this describes private rows. It may not be shared or published."


class Private:
    """A base of dataclasses that print the notice before their values."""

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"<{NOTICE} {type(self).__name__}({fields})>"
