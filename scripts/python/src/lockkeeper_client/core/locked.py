"""Names of locks that depend on the arguments of a function."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any


def name_of(template: str, function: Callable[..., Any]) -> Callable[[tuple[Any, ...], Mapping[str, Any]], str]:
    """Returns a function that fills `{argument}` in the template from the arguments of a call."""
    signature = inspect.signature(function)

    def name(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return template.format(**bound.arguments)

    return name
