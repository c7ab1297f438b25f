"""A Gateway with and without TLS, and a route with all that is read here: what every proxy's writer is tried on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from lab.systems.manifests import certificates

_GATEWAY = """
kind: Gateway
metadata: {name: proxy, namespace: ingress-lab}
spec:
  gatewayClassName: lab
  listeners:
    - {name: http, port: 80, protocol: HTTP}
    - name: https
      port: 443
      protocol: HTTPS
      tls: {certificateRefs: [{kind: Secret, name: certificate}]}
"""
_ROUTE = """
kind: HTTPRoute
metadata: {name: bench, namespace: ingress-lab}
spec:
  parentRefs: [{name: proxy}]
  hostnames: [bench.lab.test, shop.example]
  rules:
    - backendRefs: [{name: backend, port: 80}]
    - matches: [{path: {type: Exact, value: /a}}, {path: {type: PathPrefix, value: /a}}]
      backendRefs: [{name: other, port: 8080}]
      timeouts: {request: 1m30s}
      filters:
        - type: RequestHeaderModifier
          requestHeaderModifier: {set: [{name: A, value: b}]}
"""
GATEWAY: Mapping[str, Any] = yaml.safe_load(_GATEWAY)
ROUTE: Mapping[str, Any] = yaml.safe_load(_ROUTE)
CERTIFICATE = certificates.issue(certificates.CertificateRequest(("*.lab.test",), "ecdsa-256"))
