"""A real broker inside the process of a test: `Cluster`, and the pytest plugin built on it."""

from __future__ import annotations

from ottla.testing.cluster import Cluster

__all__ = ["Cluster"]
