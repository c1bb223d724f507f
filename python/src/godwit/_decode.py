"""JSON of others: each value is checked before it is used."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Callable, Dict, List, Mapping, Optional, TypeVar

from .errors import BadAnswer

T = TypeVar("T")
Object = Mapping[str, Any]


def parse(text: bytes) -> Any:
    """JSON. Numbers such as ``NaN``, and texts that nest too deep, are errors."""

    def constant(name: str) -> Any:
        raise ValueError(f"{name} is no number")

    try:
        return json.loads(text, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"the answer is no JSON: {error}") from None


def as_object(value: Any) -> Object:
    if not isinstance(value, dict):
        raise BadAnswer("the answer has no object where one must be")
    return value


def as_list(value: Any) -> List[Any]:
    if not isinstance(value, list):
        raise BadAnswer("the answer has no list where one must be")
    return value


def _wrong(key: str, wanted: str) -> BadAnswer:
    return BadAnswer(f"the answer has no {wanted} in {key!r}")


def text(source: Object, key: str) -> str:
    value = source.get(key)
    if not isinstance(value, str):
        raise _wrong(key, "text")
    return value


def whole(source: Object, key: str) -> int:
    value = source.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _wrong(key, "whole number")
    return value


def real(source: Object, key: str) -> float:
    value = source.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise _wrong(key, "number")
    try:
        return float(value)
    except OverflowError:
        raise _wrong(key, "number") from None


def flag(source: Object, key: str) -> bool:
    value = source.get(key)
    if not isinstance(value, bool):
        raise _wrong(key, "true or false")
    return value


def time(source: Object, key: str) -> datetime:
    value = text(source, key)
    try:
        if not value.endswith("Z"):
            raise ValueError
        # Python before 3.11 knows neither Z nor fractions of other than 3 or 6 digits.
        head, dot, rest = value[:-1].partition(".")
        parsed = datetime.fromisoformat(f"{head}{dot}{(rest + '000000')[:6] if dot else ''}+00:00")
    except ValueError:
        raise _wrong(key, "time") from None
    return parsed


def optional(read: Callable[[Object, str], T], source: Object, key: str) -> Optional[T]:
    return None if source.get(key) is None else read(source, key)


def inner(source: Object, key: str) -> Object:
    value = source.get(key)
    if not isinstance(value, dict):
        raise _wrong(key, "object")
    return value


def listed(source: Object, key: str) -> List[Any]:
    value = source.get(key)
    if not isinstance(value, list):
        raise _wrong(key, "list")
    return value


def counts(source: Object, key: str) -> Dict[str, int]:
    table = inner(source, key)
    return {name: whole(table, name) for name in table}


def member(kind: Callable[[str], T], source: Object, key: str) -> T:
    """A value of an enumeration."""
    value = text(source, key)
    try:
        return kind(value)
    except ValueError:
        raise BadAnswer(f"{value[:40]!r} in {key!r} is not known to this version") from None
