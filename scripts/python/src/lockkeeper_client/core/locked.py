"""Names of locks that depend on the arguments of a function."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from .errors import InvalidArgument


def name_of(template: str, function: Callable[..., Any]) -> Callable[[tuple[Any, ...], Mapping[str, Any]], str]:
    """Returns a function that fills `{argument}` in the template from the arguments of a call.

    Refuses generator functions: their bodies run after the call, without the lock.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidArgument(
            f"locked: {function.__name__} is a generator, which runs after the call: lock in its body"
        )
    signature = inspect.signature(function)

    def name(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return template.format(**bound.arguments)

    return name
