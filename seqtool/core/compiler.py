"""Machine code by Numba: functions, and the entries by which Python calls them.

Only what is not compiled yet needs this module, which imports Numba (0.3 s). What it makes does
not: an object file with one C function of Python's kind METH_FASTCALL,

    PyObject *entry(PyObject *refuse, PyObject *const *arguments, Py_ssize_t num)

It checks each argument, holds arrays by the buffer protocol until it is done, lets other threads
run meanwhile, and calls the compiled function as Numba's functions call each other. What goes wrong
is told by calling `refuse`, which raises.

Parts of Numba that are used here are not public: its version is capped, and tests compare what is
made with Numba's own functions.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, NamedTuple

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numba
from llvmlite import ir
from numba.core import cgutils, dispatcher, registry, serialize
from numba.core import types as numba_types
from numba.core.compiler import Compiler
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from seqtool.core import types
from seqtool.core.types import BAD_ARGUMENT, BAD_COUNT, FAILED

# the flags of PyObject_GetBuffer: a writable array, with its format, in C order
_WRITABLE, _FORMAT, _C_ORDER = 0x1, 0x4, 0x38

_BIT, _BYTE, _INT, _LONG = (ir.IntType(bits) for bits in (1, 8, 32, 64))
_SIZE = ir.IntType(8 * ctypes.sizeof(ctypes.c_size_t))
_POINTER, _VOID = _BYTE.as_pointer(), ir.VoidType()
_SIZES = _SIZE.as_pointer()


class _View(NamedTuple):
    """The fields of a `Py_buffer`, which are those of Python's stable ABI, by their places."""

    data: int = 0
    itemsize: int = 3
    num_dimensions: int = 5
    format: int = 6
    shape: int = 7


_VIEW = _View()
_VIEW_TYPE = ir.LiteralStructType(
    [_POINTER, _POINTER, _SIZE, _SIZE, _INT, _INT, _POINTER, _SIZES, _SIZES, _SIZES, _POINTER]
)


def numba_type(kind: Any) -> Any:
    """Return Numba's type or signature for one of `core.types`; one of Numba's is given back."""
    if isinstance(kind, types.Signature):
        return numba_type(kind.result)(*map(numba_type, kind.arguments))
    if isinstance(kind, types.Array):
        dtype = numba_type(kind.dtype)
        return numba_types.Array(dtype, kind.num_dimensions, "C", readonly=kind.readonly)
    if isinstance(kind, types.Items):
        items = tuple(map(numba_type, kind.items))
        if kind.named is not None:
            return numba_types.NamedTuple(items, kind.named)  # type: ignore[no-untyped-call]
        return numba_types.Tuple(items)  # type: ignore[no-untyped-call]
    if isinstance(kind, types.Scalar):
        return numba_types.boolean if kind.name == "bool" else getattr(numba_types, kind.name)
    return numba_types.void if isinstance(kind, types.Void) else kind


def with_globals(function: FunctionType, changed: Mapping[str, Any]) -> FunctionType:
    """Return a copy of a function that sees some other global values."""
    copy = FunctionType(
        function.__code__, {**function.__globals__, **changed}, function.__name__,
        function.__defaults__, function.__closure__,
    )  # fmt: skip
    copy.__qualname__, copy.__module__ = function.__qualname__, function.__module__
    return copy


def for_python(
    function: FunctionType, signatures: Sequence[types.Signature], options: Mapping[str, Any]
) -> Any:
    """Return Numba's own function for Python, compiled."""
    return numba.njit(list(map(numba_type, signatures)), nogil=True, **options)(function)


def inner(
    function: FunctionType, signatures: Sequence[types.Signature], options: Mapping[str, Any]
) -> Any:
    """Return Numba's function for others that are compiled, which Python cannot call."""
    quick = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return for_python(function, signatures, {**options, **quick})


def instruction(function: FunctionType) -> Any:
    """Return Numba's intrinsic of a function that gives its signature, and writes its LLVM."""
    return intrinsic(function)


class _Uncalled(dispatcher._FunctionCompiler):  # type: ignore[misc, name-defined]
    """Compiles a function up to where an entry is put beside it."""

    def _customize_flags(self, flags: Any) -> Any:
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
        return flags


def object_code(
    name: str,
    function: FunctionType,
    signatures: Sequence[types.Signature],
    options: Mapping[str, Any],
) -> bytes:
    """Return the object file of a function's entry, for the first signature that fits.

    Args:
        name: of the entry, such as no other has.
        function: to compile; what it calls must be Numba's, as from `inner`.
        signatures: one or more, of arguments that only differ in type.
        options: of `numba.njit`.

    Raises:
        numba.core.errors.NumbaError: it cannot be compiled.
    """
    options = {"nopython": True, "nogil": True, "boundscheck": None, **options}
    make = _Uncalled(function, registry.cpu_target, options, {}, Compiler)
    with global_compiler_lock:
        results = []
        for signature in map(numba_type, signatures):
            results.append(make.compile(signature.args, signature.return_type))
        library = results[0].library
        module = library.create_ir_module(name)
        _Entry(module, name, signatures, [result.fndesc for result in results]).write()
        library.add_ir_module(module)
        for result in results[1:]:
            library.add_linking_library(result.library)
        library.finalize()
        try:
            return bytes(library._get_compiled_object())
        except RuntimeError:
            # LLVM hands it over in a callback, and what a signal raises there is lost with it
            return bytes(library.codegen._tm.emit_object(library._final_module))


class _Entry:
    """The entry of a function, in LLVM."""

    def __init__(
        self, module: Any, name: str, signatures: Sequence[types.Signature], descriptions: list[Any]
    ) -> None:
        self._module, self._context = module, registry.cpu_target.target_context
        self._signatures, self._descriptions = signatures, descriptions
        form = ir.FunctionType(_POINTER, [_POINTER, _POINTER.as_pointer(), _SIZE])
        self._function = ir.Function(module, form, name)
        self._builder = ir.IRBuilder(self._function.append_basic_block("entry"))
        self._num_held = 0  # views that are held where the builder stands
        self._wrong: Callable[[], None]

    def write(self) -> None:
        """Write the whole of it."""
        builder, (refuse, arguments, num_given) = self._builder, self._function.args
        self._refuse = refuse
        num_arguments = len(self._signatures[0].arguments)
        num_views = max(sum(map(_num_arrays, one.arguments)) for one in self._signatures)
        self._views = cgutils.alloca_once(builder, _VIEW_TYPE, size=max(1, num_views))  # type: ignore[no-untyped-call]
        is_wrong = builder.icmp_signed("!=", num_given, _SIZE(num_arguments))
        with builder.if_then(is_wrong, likely=False):
            builder.ret(self._say(BAD_COUNT, num_given))
        for signature, description in zip(self._signatures, self._descriptions, strict=True):
            following = None
            if signature is not self._signatures[-1]:
                following = self._function.append_basic_block("next")
            values = []
            self._num_held = 0
            for number, kind in enumerate(signature.arguments):
                self._leave_for(following, number)
                given = builder.load(builder.gep(arguments, [_SIZE(number)]))
                values.append(self._unpacked(kind, given))
            builder.ret(self._call(signature, description, values))
            if following is not None:
                builder.position_at_end(following)

    def _call(self, signature: types.Signature, description: Any, values: list[Any]) -> Any:
        """Call the function; return the object that it becomes, or NULL."""
        builder, convention = self._builder, self._context.call_conv
        form = convention.get_function_type(description.restype, description.argtypes)
        callee = ir.Function(self._module, form, description.llvm_func_name)
        thread = self._python("PyEval_SaveThread", _POINTER)
        status, result = convention.call_function(
            builder,
            callee,
            description.restype,
            description.argtypes,
            values,
            attrs=("noinline",),  # the same machine code as without an entry
        )
        self._python("PyEval_RestoreThread", _VOID, thread)
        self._release()
        with builder.if_then(status.is_error, likely=False):
            with builder.if_then(status.is_user_exc):
                info = builder.load(status.excinfoptr)
                address, size, allocated = (builder.extract_value(info, at) for at in (0, 1, 4))
                where = builder.ptrtoint(address, _SIZE)
                size, allocated = (builder.zext(number, _SIZE) for number in (size, allocated))
                builder.ret(self._say(FAILED, where, size, allocated))
            builder.ret(self._say(FAILED))
        return self._object(signature.result, result)

    def _unpacked(self, kind: types.Kind, given: Any) -> Any:
        """Return the value of an object, or leave if it is of another type."""
        if isinstance(kind, types.Array):
            return self._array(kind, given)
        if isinstance(kind, types.Items):
            size = self._python("PyTuple_Size", _SIZE, given)
            self._require("==", size, _SIZE(len(kind.items)))
            items = [
                self._unpacked(item, self._python("PyTuple_GetItem", _POINTER, given, _SIZE(at)))
                for at, item in enumerate(kind.items)
            ]
            return self._context.make_tuple(self._builder, numba_type(kind), items)
        assert isinstance(kind, types.Scalar)
        return self._scalar(kind, given)

    def _scalar(self, kind: types.Scalar, given: Any) -> Any:
        builder = self._builder
        if kind.name == "bool":
            truth = self._python("PyObject_IsTrue", _INT, given)
            self._require(">=", truth, _INT(0))
            return builder.trunc(truth, _BIT)
        target = self._context.get_value_type(numba_type(kind))
        if kind.name.startswith("float"):
            value = self._python("PyFloat_AsDouble", ir.DoubleType(), given)
            self._require_no_error()
            return value if target == ir.DoubleType() else builder.fptrunc(value, target)
        number = self._python("PyNumber_Index", _POINTER, given)  # a float is no integer
        self._require("!=", number, _POINTER(None))
        is_signed = kind.name.startswith("int")
        read = "PyLong_AsLongLong" if is_signed else "PyLong_AsUnsignedLongLong"
        value = self._python(read, _LONG, number)
        self._python("Py_DecRef", _VOID, number)
        self._require_no_error()
        if target == _LONG:
            return value
        narrow = builder.trunc(value, target)
        back = (builder.sext if is_signed else builder.zext)(narrow, _LONG)
        self._require("==", value, back)
        return narrow

    def _array(self, kind: types.Array, given: Any) -> Any:
        builder, array_type = self._builder, numba_type(kind)
        view = builder.gep(self._views, [_INT(self._num_held)])
        flags = _FORMAT | _C_ORDER | (0 if kind.readonly else _WRITABLE)
        code = self._python("PyObject_GetBuffer", _INT, given, view, _INT(flags))
        self._require("==", code, _INT(0))
        self._num_held += 1
        itemsize = self._context.get_abi_sizeof(self._context.get_data_type(array_type.dtype))
        self._require("==", self._field(view, _VIEW.itemsize), _SIZE(itemsize))
        num_dimensions = self._field(view, _VIEW.num_dimensions)
        self._require("==", num_dimensions, _INT(kind.num_dimensions))
        shown = self._field(view, _VIEW.format)
        self._require("!=", shown, _POINTER(None))
        letter = builder.load(shown)
        is_right = _BIT(0)
        for code in _letters(kind.dtype.name, itemsize):
            is_right = builder.or_(is_right, builder.icmp_signed("==", letter, _BYTE(code)))
        self._require("==", is_right, _BIT(1))
        self._require("==", builder.load(builder.gep(shown, [_INT(1)])), _BYTE(0))
        data = self._field(view, _VIEW.data)
        place = builder.ptrtoint(data, _SIZE)
        self._require("==", builder.and_(place, _SIZE(itemsize - 1)), _SIZE(0))  # aligned
        sizes = self._field(view, _VIEW.shape)
        shape = [builder.load(builder.gep(sizes, [_INT(at)])) for at in range(kind.num_dimensions)]
        strides = [_SIZE(itemsize)]
        for size in reversed(shape[1:]):
            strides.insert(0, builder.mul(strides[0], size))
        array = self._context.make_array(array_type)(self._context, builder)
        element = self._context.get_data_type(array_type.dtype).as_pointer()
        populate_array(  # type: ignore[no-untyped-call]
            array, builder.bitcast(data, element), shape, strides, itemsize, meminfo=None
        )
        return array._getvalue()

    def _object(self, kind: types.Kind, value: Any) -> Any:
        """Return a new object with a result."""
        builder = self._builder
        if isinstance(kind, types.Void):
            return self._python("Py_BuildValue", _POINTER, self._text(""), more=True)
        if isinstance(kind, types.Items):
            made = self._python("PyTuple_New", _POINTER, _SIZE(len(kind.items)))
            # a tuple is never short of memory here: its items are numbers
            for at, item in enumerate(kind.items):
                part = self._object(item, builder.extract_value(value, at))
                self._python("PyTuple_SetItem", _INT, made, _SIZE(at), part)
            return made
        assert isinstance(kind, types.Scalar), "a compiled function returns numbers only"
        if kind.name == "bool":
            return self._python("PyBool_FromLong", _POINTER, builder.zext(value, _long_type()))
        if kind.name.startswith("float"):
            if value.type != ir.DoubleType():
                value = builder.fpext(value, ir.DoubleType())
            return self._python("PyFloat_FromDouble", _POINTER, value)
        is_signed = kind.name.startswith("int")
        if value.type != _LONG:
            value = (builder.sext if is_signed else builder.zext)(value, _LONG)
        make = "PyLong_FromLongLong" if is_signed else "PyLong_FromUnsignedLongLong"
        return self._python(make, _POINTER, value)

    def _leave_for(self, following: Any, number: int) -> None:
        """Set where to go from argument `number` on if one does not fit the signature."""

        def leave() -> None:
            self._python("PyErr_Clear", _VOID)
            self._release()
            if following is not None:
                self._builder.branch(following)
            else:
                self._builder.ret(self._say(BAD_ARGUMENT, _SIZE(number)))

        self._wrong = leave

    def _require(self, comparison: str, left: Any, right: Any) -> None:
        is_right = self._builder.icmp_signed(comparison, left, right)
        with self._builder.if_then(self._builder.not_(is_right), likely=False):
            self._wrong()

    def _require_no_error(self) -> None:
        self._require("==", self._python("PyErr_Occurred", _POINTER), _POINTER(None))

    def _release(self) -> None:
        for number in range(self._num_held):
            view = self._builder.gep(self._views, [_INT(number)])
            self._python("PyBuffer_Release", _VOID, view)

    def _say(self, what: int, *numbers: Any) -> Any:
        """Call `refuse`; return what it returns, which is NULL."""
        padded = [_SIZE(what), *numbers, *[_SIZE(0)] * (3 - len(numbers))]
        form = self._text("nnnn")
        return self._python(
            "PyObject_CallFunction", _POINTER, self._refuse, form, *padded, more=True
        )

    def _field(self, view: Any, place: int) -> Any:
        return self._builder.load(self._builder.gep(view, [_INT(0), _INT(place)]))

    def _text(self, text: str) -> Any:
        return self._context.insert_const_string(self._module, text)

    def _python(self, name: str, result: Any, *arguments: Any, more: bool = False) -> Any:
        """Call a function of Python; `more` if it takes any number of arguments."""
        fixed = [one.type for one in arguments]
        if more:  # of those, a format and what stands before it are fixed
            fixed = fixed[: 1 if name == "Py_BuildValue" else 2]
        form = ir.FunctionType(result, fixed, var_arg=more)
        function = cgutils.get_or_insert_function(self._module, form, name)  # type: ignore[no-untyped-call]
        return self._builder.call(function, arguments)


def _num_arrays(kind: types.Kind) -> int:
    if isinstance(kind, types.Items):
        return sum(map(_num_arrays, kind.items))
    return int(isinstance(kind, types.Array))


def _letters(name: str, itemsize: int) -> bytes:
    """Return what names a number in the format of a buffer: several types of C may be one here."""
    if name in ("bool", "float32", "float64"):
        return {"bool": b"?", "float32": b"f", "float64": b"d"}[name]
    letters = "".join(one for one in "bhilq" if struct.calcsize(one) == itemsize)
    return (letters if name.startswith("int") else letters.upper()).encode()


def _long_type() -> Any:
    return ir.IntType(8 * ctypes.sizeof(ctypes.c_long))


def raised(address: int, size: int, *, has_values: bool) -> BaseException:
    """Return the exception that compiled code raised, of its description in the machine code.

    Args:
        address: of the description, which Numba pickled when it compiled.
        size: of it, in bytes.
        has_values: whether the exception was raised with values of the run; they are left out.
    """
    described = ctypes.string_at(address, size)
    kind, arguments, _ = serialize._numba_unpickle(address, described, described)  # type: ignore[no-untyped-call]
    exception = kind() if has_values else kind(*(arguments or ()))
    assert isinstance(exception, BaseException)
    return exception


# A block of memory that arrays in compiled functions are made in: it has a header of five fields
# before its data (`numba/core/runtime/nrtdynmod.py`), is counted by who uses it, and freed with the
# last. Numba's own functions are in its C part, and ask for more.
_ALLOCATION = """
declare ptr @malloc(i64)
declare void @free(ptr)

define ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 %alignment) {
  %align = zext i32 %alignment to i64
  %ahead = add i64 %align, 40
  %total = add i64 %size, %ahead
  %block = call ptr @malloc(i64 %total)
  %failed = icmp eq ptr %block, null
  br i1 %failed, label %end, label %made
made:
  %start = ptrtoint ptr %block to i64
  %past = add i64 %start, %ahead
  %over = urem i64 %past, %align
  %place = sub i64 %past, %over
  %data = inttoptr i64 %place to ptr
  %users = insertvalue {i64, ptr, ptr, ptr, i64} zeroinitializer, i64 1, 0
  %placed = insertvalue {i64, ptr, ptr, ptr, i64} %users, ptr %data, 3
  %header = insertvalue {i64, ptr, ptr, ptr, i64} %placed, i64 %size, 4
  store {i64, ptr, ptr, ptr, i64} %header, ptr %block
  br label %end
end:
  ret ptr %block
}

define ptr @NRT_MemInfo_alloc(i64 %size) {
  %block = call ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 16)
  ret ptr %block
}

define ptr @NRT_Allocate(i64 %size) {
  %memory = call ptr @malloc(i64 %size)
  ret ptr %memory
}

define void @NRT_Free(ptr %memory) {
  call void @free(ptr %memory)
  ret void
}

define void @NRT_MemInfo_call_dtor(ptr %block) {
  call void @free(ptr %block)
  ret void
}
"""


def allocation_code() -> bytes:
    """Return the object file of what compiled functions call for memory."""
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    return bytes(machine.emit_object(llvm.parse_assembly(_ALLOCATION)))
