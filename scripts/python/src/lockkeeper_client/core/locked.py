"""Names of locks that depend on the arguments of a function."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from string import Formatter
from typing import Any

from .errors import InvalidArgument


def check_template(template: object) -> None:
    """Refuses what is no template, for example the function of a decorator without parentheses."""
    detail = ""
    if isinstance(template, str):
        try:
            list(_arguments(template))
            return
        except ValueError as error:
            detail = f": {error}"
    raise InvalidArgument(f"locked: a name such as 'report:{{day}}', got {template!r}{detail}")


def _arguments(template: str) -> Iterator[str]:
    """Yields the arguments that a template names."""
    for _, field, form, _ in Formatter().parse(template):
        if field is not None:
            yield re.split(r"[.\[]", field, maxsplit=1)[0]
            yield from _arguments(form or "")


def name_of(template: str, function: Callable[..., Any]) -> Callable[[tuple[Any, ...], Mapping[str, Any]], str]:
    """Returns a function that fills `{argument}` in the template from the arguments of a call.

    Refuses generator functions, whose bodies run after the call, without the lock, and a template that names something
    else than arguments of the function.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidArgument(f"locked: {function!r} is a generator, which runs after the call: lock in its body")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"locked: a function with a signature, got {function!r}") from error
    for argument in _arguments(template):
        if argument not in signature.parameters:
            raise InvalidArgument(f"locked: an argument of {function!r}, got {{{argument}}} in {template!r}")

    def name(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return template.format(**bound.arguments)

    return name
