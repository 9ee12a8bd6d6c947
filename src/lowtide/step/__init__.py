"""One optimizer step's gradients, exactly: through sequences of any length, in the memory of one chunk."""

from lowtide.step.stream import StreamStep

__all__ = ["StreamStep"]
