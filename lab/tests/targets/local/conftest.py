"""Files `*_inside.py` run in the local target's namespaces, where `test_local.py` starts them; what they leave is looked for after each test."""

from lab.tests.support.inside import INSIDE, clean, target

__all__ = ["clean", "target"]

collect_ignore_glob = [] if INSIDE else ["*_inside.py"]
