"""Hypothesis must not time compiled code, and examples must not depend on the day."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "trimtab", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], max_examples=60
)
settings.load_profile("trimtab")
