"""All workloads for a running broker."""

from __future__ import annotations

from harness.group_works import group_works
from harness.scale import Scale
from harness.transaction_works import transaction_works
from harness.works import Work, warm_works


def running_works(scale: Scale) -> list[Work]:
    """Return the workloads in the order of the table."""
    return [*warm_works(scale), *group_works(scale), *transaction_works(scale)]
