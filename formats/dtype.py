"""Names of dtypes: as torch prints them, without the module."""

from typing import Final

DTYPES: Final = frozenset(
    {
        "bool",
        *("uint8", "uint16", "uint32", "uint64"),
        *("int8", "int16", "int32", "int64"),
        *("float16", "bfloat16", "float32", "float64"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
        *("complex32", "complex64", "complex128"),
    }
)
