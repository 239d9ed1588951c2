"""Every policy by its name: what it comes from, what it looks at, what it decides, what it needs to be given.

A module of this folder offers its policies in a list called `REGISTRATIONS`; the registry imports the folder's modules
when it is first asked, so a new policy is one new file. Others add theirs with `register`.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.control.decision import Policy
from penstock.errors import PolicyError

_FOLDER = "penstock.control.policies"


@dataclass(frozen=True)
class Registration:
    """One policy: its name, how it is made, and what is to be known about it.

    >>> Registration("mine", dict, thesis="ours", observes=("latency",), decides=("widths",)).name
    'mine'
    """

    name: str
    factory: Callable[..., Any]  # keyword parameters -> a Policy
    thesis: str  # where it comes from: "001, section 4.6", "ours", "DS2 (OSDI 2018)"
    observes: tuple[str, ...]  # the fields of Observation and OperatorView that it reads
    decides: tuple[str, ...]  # the fields of Decision that it sets
    needs: tuple[str, ...] = ()  # parameters without a default, and what the host must offer


_known: dict[str, Registration] = {}
_loaded: list[bool] = []


def register(
    name: str,
    factory: Callable[..., Any],
    *,
    thesis: str,
    observes: tuple[str, ...],
    decides: tuple[str, ...],
    needs: tuple[str, ...] = (),
) -> Registration:
    """Add a policy under a new name.

    >>> from penstock.control.decision import Static
    >>> _ = register("doctest-static", Static, thesis="ours", observes=(), decides=())
    >>> type(make("doctest-static")).__name__
    'Static'
    >>> forget("doctest-static")
    """
    return _add(Registration(name, factory, thesis, observes, decides, needs))


def forget(name: str) -> None:
    """Remove a policy that was registered by hand.

    >>> forget("never-registered")
    """
    _known.pop(name, None)


def make(name: str, **params: Any) -> Policy:
    """The policy of that name with these parameters; a wrong name or parameter is refused with the right ones.

    >>> make("no-such-policy")
    Traceback (most recent call last):
    ...
    penstock.errors.PolicyError: policy 'no-such-policy': there is no policy of that name. Remedy: use one of ...
    """
    entry = entry_of(name)
    takes = inspect.signature(entry.factory)
    try:
        takes.bind(**params)
    except TypeError as error:
        raise PolicyError(f"policy '{name}'", str(error), f"its parameters are {takes}") from error
    made: Policy = entry.factory(**params)
    return made


def names() -> tuple[str, ...]:
    """The names of all policies, sorted.

    >>> "elastic" in names()
    True
    """
    _load()
    return tuple(sorted(_known))


def entry_of(name: str) -> Registration:
    """What is known about a policy.

    >>> entry_of("elastic").thesis
    '001, section 4.6'
    """
    _load()
    if name not in _known:
        near = difflib.get_close_matches(name, _known) or names()
        raise PolicyError(f"policy '{name}'", "there is no policy of that name", "use one of " + ", ".join(near))
    return _known[name]


def _add(entry: Registration) -> Registration:
    other = _known.get(entry.name)
    if other is not None and other != entry:
        raise PolicyError(f"policy '{entry.name}'", "the name is taken", "choose another name")
    _known[entry.name] = entry
    return entry


def _load() -> None:
    """Import the folder's modules once and take what they register."""
    if _loaded:
        return
    _loaded.append(True)  # first: a module may itself call register() while it is imported
    package = importlib.import_module(_FOLDER)
    for module in pkgutil.iter_modules(package.__path__):
        for entry in getattr(importlib.import_module(f"{_FOLDER}.{module.name}"), "REGISTRATIONS", ()):
            _add(entry)
