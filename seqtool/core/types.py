"""The types of what compiled functions take and return, written as Numba writes them, without it.

    types.void(types.int32[::1], types.uint8[:, ::1], types.int64)      a signature

`core.compiler` makes Numba's own of them when a function has to be compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Kind:
    """A type, which called with those of arguments gives the signature that returns it."""

    def __call__(self, *arguments: Any) -> Signature:
        """Return the signature of a function that takes such arguments."""
        return Signature(self, arguments)


@dataclass(frozen=True)
class Signature:
    """What a function returns and takes; within intrinsics, arguments may be Numba's types."""

    result: Kind
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Scalar(Kind):
    """A number; `name` is NumPy's."""

    name: str

    def __getitem__(self, dimensions: slice | tuple[slice, ...]) -> Array:
        """Return the type of arrays in C order: `[::1]`, `[:, ::1]`, and so on."""
        slices = dimensions if isinstance(dimensions, tuple) else (dimensions,)
        steps = [one.step for one in slices]
        if steps != [None] * (len(steps) - 1) + [1]:
            raise TypeError("arrays are in C order: [..., ::1]")
        return Array(self, len(steps))

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Array(Kind):
    """An array in C order."""

    dtype: Scalar
    num_dimensions: int
    readonly: bool = False  # it is not written to, and may be one that cannot be

    def __str__(self) -> str:
        dimensions = ", ".join([":"] * (self.num_dimensions - 1) + ["::1"])
        return f"{'read-only ' * self.readonly}{self.dtype}[{dimensions}]"


@dataclass(frozen=True)
class Items(Kind):
    """A tuple, of a class of named ones if one is given."""

    items: tuple[Kind, ...]
    named: type | None = None
    fields: tuple[str, ...] = ()  # the names of the items

    def __str__(self) -> str:
        return f"{self.named.__name__ if self.named else ''}({', '.join(map(str, self.items))})"


@dataclass(frozen=True)
class Void(Kind):
    """What a function without a result returns."""


def Tuple(items: Sequence[Kind]) -> Items:
    """Return the type of a tuple."""
    return Items(tuple(items))


def UniTuple(item: Kind, num: int) -> Items:
    """Return the type of a tuple of so many things of one type."""
    return Items((item,) * num)


def NamedTuple(items: Sequence[Kind], named: type) -> Items:
    """Return the type of a named tuple."""
    return Items(tuple(items), named, getattr(named, "_fields", ()))


def NamedUniTuple(item: Kind, num: int, named: type) -> Items:
    """Return the type of a named tuple of so many things of one type."""
    return NamedTuple((item,) * num, named)


void = Void()
boolean = Scalar("bool")
int8, int16, int32, int64 = (Scalar(f"int{bits}") for bits in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (Scalar(f"uint{bits}") for bits in (8, 16, 32, 64))
float32, float64 = Scalar("float32"), Scalar("float64")

# what an entry finds wrong: how many arguments, the type of one, or an exception of the function
BAD_COUNT, BAD_ARGUMENT, FAILED = range(3)
