"""For every test: a busy machine makes no property wrong, so Hypothesis judges none by how long it took."""

from hypothesis import HealthCheck, settings

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
