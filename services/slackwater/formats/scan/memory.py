"""Loads and stores by address, and a few machine instructions that Python lacks.

Compiled functions pass addresses, not arrays: references to arrays are counted at each call, which
took as long as reading the message. The caller keeps the memory alive and passes its size. These
functions do not check bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_as_intrinsic: Any = intrinsic
_UnaryFunction = Callable[[int], int]
_BinaryFunction = Callable[[int, int], int]
U64: _UnaryFunction = np.uint64  # type: ignore[assignment]
U8: _UnaryFunction = np.uint8  # type: ignore[assignment]
I64: _UnaryFunction = np.int64  # type: ignore[assignment]
I32: _UnaryFunction = np.int32  # type: ignore[assignment]
"""Integer types. Compiled code must not mix signed and unsigned ones: the result is a double."""
_BYTE: Final = ir.IntType(8)
_INT: Final = ir.IntType(32)
_LONG: Final = ir.IntType(64)
_WIDE: Final = ir.IntType(128)
_DOUBLE: Final = ir.DoubleType()


def _load(kind: Any, llvm: Any) -> Any:
    def load(_context: Any, address: Any) -> Any:
        def generate(_c: Any, builder: Any, _s: Any, arguments: Any) -> Any:
            value = builder.load(builder.inttoptr(arguments[0], llvm.as_pointer()))
            value.align = 1
            return value

        return kind(types.intp), generate

    return _as_intrinsic(load)


def _store(kind: Any, llvm: Any) -> Any:
    def store(_context: Any, address: Any, value: Any) -> Any:
        def generate(_c: Any, builder: Any, _s: Any, arguments: Any) -> None:
            place = builder.inttoptr(arguments[0], llvm.as_pointer())
            builder.store(arguments[1], place).align = 1

        return types.void(types.intp, kind), generate

    return _as_intrinsic(store)


load_u8: _UnaryFunction = _load(types.uint8, _BYTE)
load_i32: _UnaryFunction = _load(types.int32, _INT)
load_i64: _UnaryFunction = _load(types.int64, _LONG)
load_u64: _UnaryFunction = _load(types.uint64, _LONG)
load_f64: Callable[[int], float] = _load(types.float64, _DOUBLE)
store_u8: Callable[[int, Any], None] = _store(types.uint8, _BYTE)
store_i32: Callable[[int, Any], None] = _store(types.int32, _INT)
store_i64: Callable[[int, Any], None] = _store(types.int64, _LONG)
store_u64: Callable[[int, Any], None] = _store(types.uint64, _LONG)
store_f64: Callable[[int, Any], None] = _store(types.float64, _DOUBLE)


def _leading_zeros(_context: Any, word: Any) -> Any:
    """Return the number of zero bits above the highest set bit of a word that is not 0."""

    def generate(_c: Any, builder: Any, _s: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


def _trailing_zeros(_context: Any, word: Any) -> Any:
    """Return the number of zero bits below the lowest set bit of a word that is not 0."""

    def generate(_c: Any, builder: Any, _s: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


def _high_product(_context: Any, one: Any, other: Any) -> Any:
    """Return the upper 64 bits of a product of words."""

    def generate(_c: Any, builder: Any, _s: Any, arguments: Any) -> Any:
        one, other = (builder.zext(word, _WIDE) for word in arguments)
        return builder.trunc(builder.lshr(builder.mul(one, other), ir.Constant(_WIDE, 64)), _LONG)

    return types.uint64(types.uint64, types.uint64), generate


def _double_of_bits(_context: Any, word: Any) -> Any:
    """Return the double with these bits."""

    def generate(_c: Any, builder: Any, _s: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], _DOUBLE)

    return types.float64(types.uint64), generate


def _call_with(_context: Any, function: Any, argument: Any) -> Any:
    """Call a C function at an address with one pointer; it returns nothing."""

    def generate(_c: Any, builder: Any, _s: Any, arguments: Any) -> None:
        kind = ir.FunctionType(ir.VoidType(), [_LONG])
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [arguments[1]])

    return types.void(types.intp, types.intp), generate


def _call_for(_context: Any, function: Any, one: Any, other: Any) -> Any:
    """Call a C function at an address with two pointers; it returns a word."""

    def generate(_c: Any, builder: Any, _s: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_LONG, [_LONG, _LONG])
        return builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])

    return types.int64(types.intp, types.intp, types.intp), generate


leading_zeros: _UnaryFunction = _as_intrinsic(_leading_zeros)
trailing_zeros: _UnaryFunction = _as_intrinsic(_trailing_zeros)
high_product: _BinaryFunction = _as_intrinsic(_high_product)
double_of_bits: Callable[[int], float] = _as_intrinsic(_double_of_bits)
call_with: Callable[[int, int], None] = _as_intrinsic(_call_with)
call_for: Callable[[int, int, int], int] = _as_intrinsic(_call_for)
