"""Settings for every test."""

from hypothesis import settings

# Times depend on the machine; what is drawn must not: a failure has to come back at the next call.
settings.register_profile("lowtide", deadline=None, derandomize=True, database=None)
# Under the sanitizers a case takes tens of times longer.
settings.register_profile("sanitize", settings.get_profile("lowtide"), max_examples=20)
settings.load_profile("lowtide")
