"""The GPU's driver, as it describes itself."""

import ctypes


def driver_version() -> tuple[int, int]:
    """Return the newest CUDA version that the driver supports, (13, 0); (0, 0) without a driver."""
    version = ctypes.c_int(0)
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return 0, 0
    return version.value // 1000, version.value % 1000 // 10
