"""The errors Penstock raises: each names the operator, the rule broken and the remedy."""

from __future__ import annotations


class PenstockError(Exception):
    """Base of every error Penstock raises on purpose."""


class FlowError(PenstockError):
    """A flow is wrong as it was written; raised when it is built, never while it runs.

    >>> print(FlowError("map 'score'", "replicas must be at least 1, got 0", "pass replicas=1 or more"))
    map 'score': replicas must be at least 1, got 0. Remedy: pass replicas=1 or more.
    """

    def __init__(self, where: str, rule: str, remedy: str) -> None:
        super().__init__(f"{where}: {rule}. Remedy: {remedy}.")
        self.where, self.rule, self.remedy = where, rule, remedy


class PolicyError(PenstockError):
    """A policy or a model was given what it cannot work with: a bad parameter, or statistics that are no numbers.

    >>> print(PolicyError("bound 'fast'", "mean_s must be greater than 0, got 0", "state the latency in seconds"))
    bound 'fast': mean_s must be greater than 0, got 0. Remedy: state the latency in seconds.
    """

    def __init__(self, where: str, rule: str, remedy: str) -> None:
        super().__init__(f"{where}: {rule}. Remedy: {remedy}.")
        self.where, self.rule, self.remedy = where, rule, remedy


class UserFunctionError(PenstockError):
    """A user's function raised, or returned what it did not declare; the job stops, its checkpoint stays."""


class CheckpointError(PenstockError):
    """A checkpoint cannot be used: it belongs to another flow, or a file is missing or corrupt."""


class JobFailed(PenstockError):
    """A job ended by an error that was not the user's and that restarts did not cure."""
