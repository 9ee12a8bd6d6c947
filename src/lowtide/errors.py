"""The one base class of everything that Lowtide raises for what a user can cause.

An error says what happened with the values that matter, why it matters, and what to do. It survives pickling, since
errors come back from child processes.
"""

from __future__ import annotations

import functools


class LowtideError(Exception):
    """What happened, why it matters, and what to do about it."""

    def __init__(self, *, what: str, why: str, fix: str) -> None:
        """Keep the three parts.

        Args:
            what: What happened, with the values that led to it.
            why: Why Lowtide stops here rather than going on.
            fix: What to do: a command, an argument, another name.
        """
        super().__init__(what, why, fix)
        self.what = what
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.what}\n  why: {self.why}\n  fix: {self.fix}"

    def __reduce__(self) -> tuple[object, ...]:
        # Exception's own would call the class with positional arguments, which it does not take.
        make = functools.partial(type(self), what=self.what, why=self.why, fix=self.fix)
        return make, (), self.__dict__


class MissingExtraError(LowtideError, ImportError):
    """A name was used whose framework is not installed."""


class UnsupportedError(LowtideError):
    """This machine, operating system or configuration cannot do what was asked."""
