"""`every`: a parametrization inside one test, for values that take no time."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable


def every(names: str, values: Iterable[object]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Calls the test once for each of `values`, as `pytest.mark.parametrize(names, values)` would, but as one test.

    A test costs pytest and pytest-xdist 8 ms of processor time, and each worker collects it. So a table of a thousand rows that
    take a moment each is one test. It ends at the first value that fails, which the traceback names. Fixtures are made once.
    """
    keys = [name.strip() for name in names.split(",")]
    table = tuple(values)

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**fixtures: object) -> None:
            for value in table:
                arguments = {keys[0]: value} if len(keys) == 1 else dict(zip(keys, value, strict=True))  # type: ignore[call-overload]
                try:
                    test(**arguments, **fixtures)
                except BaseException as error:
                    error.add_note(f"with {', '.join(f'{key}={given!r}' for key, given in arguments.items())}")
                    raise
            assert table, "a table without a row tests nothing"

        signature = inspect.signature(test)
        kept = [each for name, each in signature.parameters.items() if name not in keys]
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return run

    return decorated
