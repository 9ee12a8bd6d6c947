"""From a budget to a plan: probes in a child process, models of bytes and seconds, a search, and a proof.

The functions are `lowtide.plan` and `lowtide.fits` (`planner.py`); what they give is here.
"""

from lowtide.planning.fit import Fit
from lowtide.planning.floor import DoesNotFitError
from lowtide.planning.plan import BucketPlan, Component, Offer, Plan, SizeTried

__all__ = ["BucketPlan", "Component", "DoesNotFitError", "Fit", "Offer", "Plan", "SizeTried"]
