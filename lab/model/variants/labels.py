"""The Kubernetes label by which the lab finds the proxy and the backend in manifests.

It has a module to itself, because targets and systems need it without a variant.
"""

from __future__ import annotations

ROLE_LABEL = "lab/role"
"""The name of the label. Its value is the role of a workload, such as `proxy` (`lab.model.endpoint.Role`)."""
