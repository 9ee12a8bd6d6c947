"""What functions, classes and objects of a user compute, as text that is the same in every process.

Followed are the functions that a function calls by name, holds in its closure or has as defaults, the bases of classes,
and the plain values of objects. What libraries have made is known by its name: their versions are told elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import nn

_LIBRARIES = {"torch", "lowtide", "numpy"}
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_OF_MODULES = set(vars(nn.Module()))
"""What every module has: hooks, parameters and buffers, which are told elsewhere."""


def told(thing: object) -> list[str]:
    """The code of a function, a class or an object, and the values that it works with."""
    return list(_told(thing, set()))


def told_values(module: nn.Module) -> list[str]:
    """The plain values that a module has, by name."""
    return sorted(
        f"{name}={_plain(value)}"
        for name, value in vars(module).items()
        if name not in _OF_MODULES and _is_plain(value)
    )


def _told(thing: Any, seen: set[int]) -> Iterator[str]:  # noqa: ANN401 - whatever there is
    if _is_plain(thing):
        yield _plain(thing)
    elif id(thing) not in seen and not isinstance(thing, ModuleType):
        seen.add(id(thing))
        if isinstance(thing, FunctionType):
            yield from _told_function(thing, seen)
        elif isinstance(thing, type):
            yield from _told_class(thing, seen)
        elif isinstance(thing, nn.Module):
            yield from _told_module(thing, seen)
        else:
            yield from _told_object(thing, seen)


def _told_object(thing: Any, seen: set[int]) -> Iterator[str]:  # noqa: ANN401 - whatever there is
    if isinstance(thing, (staticmethod, classmethod, MethodType)):
        inner: tuple[Any, ...] = (thing.__func__, getattr(thing, "__self__", None))
    elif isinstance(thing, property):
        inner = (thing.fget,)
    elif isinstance(thing, partial):
        inner = (thing.func, *thing.args, *(part for item in sorted(thing.keywords.items()) for part in item))
    else:
        own = sorted(getattr(thing, "__dict__", {}).items())
        inner = (type(thing), *(part for item in own if _is_followed(item[1]) for part in item))
    for part in inner:
        yield from _told(part, seen)


def _told_module(module: nn.Module, seen: set[int]) -> Iterator[str]:
    yield repr(module)
    for part in module.modules():
        yield from told_values(part)
        yield from _told(type(part), seen)


def _told_function(function: FunctionType, seen: set[int]) -> Iterator[str]:
    if _is_known(function):
        yield f"{function.__module__}.{function.__qualname__}"
        return
    yield _code(function.__code__)
    for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield from _told(value, seen)
    for cell in function.__closure__ or ():
        yield from _told(cell.cell_contents, seen) if _is_filled(cell) else ()
    for name in sorted(_names(function.__code__)):
        value = function.__globals__.get(name)
        if value is not None and not isinstance(value, ModuleType):
            yield name
            yield from _told(value, seen)


def _told_class(cls: type, seen: set[int]) -> Iterator[str]:
    for one in cls.__mro__:
        yield f"{one.__module__}.{one.__qualname__}" if _is_known(one) else one.__qualname__
        if _is_known(one):
            continue
        for name, value in sorted(vars(one).items()):
            if isinstance(value, (staticmethod, classmethod, property)) or _is_followed(value):
                yield name
                yield from _told(value, seen)


def _code(code: CodeType) -> str:
    constants = [_code(one) if isinstance(one, CodeType) else _plain(one) for one in code.co_consts]
    return f"{code.co_code.hex()}{constants}{code.co_names}"


def _names(code: CodeType) -> set[str]:
    """The names that a function looks up, those of functions within it included."""
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _is_known(thing: Any) -> bool:  # noqa: ANN401 - a class or a function
    """Whether a library has made it."""
    package = str(thing.__module__).partition(".")[0]
    if package in _LIBRARIES or package in sys.stdlib_module_names:
        return True
    place = getattr(sys.modules.get(thing.__module__), "__file__", None) or ""
    return bool({"site-packages", "dist-packages"} & set(Path(place).parts))


def _is_followed(value: object) -> bool:
    return _is_plain(value) or isinstance(value, (FunctionType, MethodType, partial, type, nn.Module))


def _is_filled(cell: Any) -> bool:  # noqa: ANN401 - CellType
    try:
        cell.cell_contents  # noqa: B018 - raises where the variable is not bound yet
    except ValueError:
        return False
    return True


def _is_plain(value: object) -> bool:
    if isinstance(value, (tuple, list, set, frozenset)):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    return isinstance(value, _PLAIN) or value is Ellipsis


def _plain(value: object) -> str:
    """Plain values as text; sets in an order that does not depend on the process."""
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(_plain, value)))}}}"
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_plain, value))}]"
    return repr(value)
