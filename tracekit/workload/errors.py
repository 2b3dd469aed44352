"""The one exception a person sees when the workload cannot do what was asked."""

from __future__ import annotations

__all__ = ["WorkloadError"]


class WorkloadError(Exception):
    """The workload cannot run as asked; the message is one sentence meant for a person.

    Raised for a missing CUDA device, a damaged data set or checkpoint, a missing optional package
    and an unwritable output. Programming errors keep their own exception types.
    """
