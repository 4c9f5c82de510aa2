"""The MPI library's control variables (MPI_T) over ctypes: mpi4py has no MPI_T interface.

Works with Open MPI (datatypes are pointers, enumerations exist) and MPICH or Intel MPI (datatypes are 32-bit
integers, names only in the description).
"""

import ctypes
from collections.abc import Callable
from ctypes import byref, c_int, c_void_p, create_string_buffer
from dataclasses import dataclass
from typing import Any

from collbench.errors import UnansweredError

Value = int | float | bool | str

_TEXT_BYTES = 16384


class ControlVariableError(UnansweredError):
    """A control variable cannot be read or written; the message names it and the library's return code."""


def load(MPI: Any) -> ctypes.CDLL:
    """Return a handle through which the functions of the loaded MPI library resolve."""
    return ctypes.CDLL(MPI.__file__, mode=ctypes.RTLD_LOCAL)


@dataclass(frozen=True, slots=True)
class Info:
    """What the library says of one control variable.

    Attributes:
        index: its number in this process.
        kind: int, unsigned, unsigned_long, unsigned_long_long, count, bool, char or double.
        description: the library's own text.
        enum: number → name where the library publishes one; empty otherwise.
    """

    index: int
    kind: str
    description: str
    enum: dict[int, str]


_CTYPES: dict[str, Any] = {
    "int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "unsigned_long": ctypes.c_ulong,
    "unsigned_long_long": ctypes.c_ulonglong,
    "count": ctypes.c_longlong,
    "bool": ctypes.c_bool,
    "double": ctypes.c_double,
}


def _datatypes(MPI: Any) -> dict[int, str]:
    names = {
        "int": MPI.INT, "unsigned": MPI.UNSIGNED, "unsigned_long": MPI.UNSIGNED_LONG,
        "unsigned_long_long": MPI.UNSIGNED_LONG_LONG, "count": MPI.COUNT, "bool": MPI.C_BOOL,
        "char": MPI.CHAR, "double": MPI.DOUBLE,
    }  # fmt: skip
    mask = (1 << (8 * MPI._sizeof(MPI.Datatype))) - 1  # noqa: SLF001 - mpi4py's documented handle access
    return {MPI._handleof(datatype) & mask: kind for kind, datatype in names.items()}  # noqa: SLF001


class ControlVariables:
    """Read and write the control variables of the MPI library in this process.

    A write must be made with the same value on every rank; what it reaches differs between libraries
    (Open MPI: communicators made afterwards; MPICH: the next call).

    Args:
        MPI: the module ``mpi4py.MPI``.

    Raises:
        ControlVariableError: the library's tools interface does not start.
    """

    def __init__(self, MPI: Any) -> None:
        self._lib = load(MPI)
        self._mask = (1 << (8 * MPI._sizeof(MPI.Datatype))) - 1  # noqa: SLF001
        self._kinds = _datatypes(MPI)
        self._known: dict[str, Info | None] = {}
        provided = c_int()
        code = self._lib.MPI_T_init_thread(MPI.THREAD_SINGLE, byref(provided))
        if code:
            raise ControlVariableError(
                f"MPI_T_init_thread failed with code {code}: no control variables here"
            )

    def exists(self, name: str) -> bool:
        """Say whether the library has a variable of this name."""
        return self._info(name) is not None

    def description(self, name: str) -> str:
        """Return the library's own text on a variable."""
        return self._need(name).description

    def enum(self, name: str) -> dict[int, str]:
        """Return number → name of a variable's values; empty where the library publishes none (MPICH)."""
        return dict(self._need(name).enum)

    def read(self, name: str) -> Value:
        """Return the present value. It is no evidence of what a collective does."""
        info = self._need(name)
        return self._with_handle(name, info, lambda handle, count: self._get(name, info, handle, count))

    def write(self, name: str, value: Value) -> None:
        """Set a variable, check the return code and that it reads back the same.

        Raises:
            ControlVariableError: no such variable, refused, or another value stands there afterwards.
        """
        info = self._need(name)

        def put(handle: c_void_p, count: int) -> Value:
            code = self._lib.MPI_T_cvar_write(handle, self._pack(info, value, count))
            if code:
                raise ControlVariableError(f"writing {value!r} to {name} was refused with code {code}")
            return self._get(name, info, handle, count)

        found = self._with_handle(name, info, put)
        if found != (str(value) if info.kind == "char" else value):
            raise ControlVariableError(f"{name} reads {found!r} after {value!r} was written")

    def names(self) -> list[str]:
        """Return the names of all control variables."""
        number = c_int()
        self._lib.MPI_T_cvar_get_num(byref(number))
        return [name for i in range(number.value) if (name := self._describe(i)[0])]

    # --- below: one MPI_T call each -------------------------------------------------------------------------

    def _need(self, name: str) -> Info:
        info = self._info(name)
        if info is None:
            raise ControlVariableError(f"the MPI library has no control variable {name}")
        return info

    def _info(self, name: str) -> Info | None:
        if name not in self._known:
            index = c_int()
            code = self._lib.MPI_T_cvar_get_index(name.encode(), byref(index))
            self._known[name] = None if code else self._describe(index.value)[1]
        return self._known[name]

    def _describe(self, index: int) -> tuple[str, Info]:
        name, text = create_string_buffer(_TEXT_BYTES), create_string_buffer(_TEXT_BYTES)
        name_length, text_length = c_int(_TEXT_BYTES), c_int(_TEXT_BYTES)
        verbosity, binding, scope = c_int(), c_int(), c_int()
        datatype, enum = ctypes.c_uint64(), c_void_p()
        code = self._lib.MPI_T_cvar_get_info(
            c_int(index), name, byref(name_length), byref(verbosity), byref(datatype), byref(enum),
            text, byref(text_length), byref(binding), byref(scope),
        )  # fmt: skip
        if code:
            return "", Info(index, "unknown", "", {})
        kind = self._kinds.get(datatype.value & self._mask, "unknown")
        entries = self._entries(enum) if self._mask > 0xFFFFFFFF else {}
        return name.value.decode(errors="replace"), Info(
            index, kind, text.value.decode(errors="replace"), entries
        )

    def _entries(self, enum: c_void_p) -> dict[int, str]:
        """Return an enumeration's items (only where handles are pointers: MPICH publishes none)."""
        number, length = c_int(), c_int(_TEXT_BYTES)
        text = create_string_buffer(_TEXT_BYTES)
        if not enum.value or self._lib.MPI_T_enum_get_info(enum, byref(number), text, byref(length)):
            return {}
        items: dict[int, str] = {}
        for i in range(number.value):
            value, length = c_int(), c_int(_TEXT_BYTES)
            if self._lib.MPI_T_enum_get_item(enum, c_int(i), byref(value), text, byref(length)) == 0:
                items[value.value] = text.value.decode(errors="replace")
        return items

    def _with_handle(self, name: str, info: Info, use: Callable[[c_void_p, int], Value]) -> Value:
        handle, count = c_void_p(), c_int()
        code = self._lib.MPI_T_cvar_handle_alloc(c_int(info.index), None, byref(handle), byref(count))
        if code:
            raise ControlVariableError(f"no handle for {name}: code {code}")
        try:
            return use(handle, count.value)
        finally:
            self._lib.MPI_T_cvar_handle_free(byref(handle))

    def _get(self, name: str, info: Info, handle: c_void_p, count: int) -> Value:
        if info.kind == "char":
            text = create_string_buffer(max(count, 1) + 1)
            code = self._lib.MPI_T_cvar_read(handle, text)
            value: Value = text.value.decode(errors="replace")
        elif info.kind in _CTYPES:
            number = _CTYPES[info.kind]()
            code = self._lib.MPI_T_cvar_read(handle, byref(number))
            value = number.value
        else:
            raise ControlVariableError(f"{name} has a datatype that collbench does not know")
        if code:
            raise ControlVariableError(f"reading {name} failed with code {code}")
        return value

    def _pack(self, info: Info, value: Value, count: int) -> Any:
        if info.kind == "char":
            return create_string_buffer(str(value).encode(), max(count, len(str(value))) + 1)
        if info.kind not in _CTYPES:
            raise ControlVariableError("a variable of an unknown datatype cannot be written")
        return byref(_CTYPES[info.kind](value))
