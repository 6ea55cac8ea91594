"""Train one round on the pretended device, as far as it comes, since no kernel computes
anything."""

import ctypes

library = ctypes.CDLL("cpp_src/lib/libxgboost.so")
library.XGBGetLastError.restype = ctypes.c_char_p


def run(name: str, *words: object) -> bool:
    """Call a function of XGBoost's C interface; return whether it succeeded."""
    status = getattr(library, name)(*words)
    if status != 0:
        print(f"{name}: {library.XGBGetLastError().decode()[:300]}")
    return bool(status == 0)


ROWS, COLUMNS = 64, 4
values = (ctypes.c_float * (ROWS * COLUMNS))(*(float(i % 7) for i in range(ROWS * COLUMNS)))
labels = (ctypes.c_float * ROWS)(*(float(i % 2) for i in range(ROWS)))
matrix, booster = ctypes.c_void_p(), ctypes.c_void_p()
rows, columns = ctypes.c_ulong(ROWS), ctypes.c_ulong(COLUMNS)
run("XGDMatrixCreateFromMat", values, rows, columns, ctypes.c_float(-1), ctypes.byref(matrix))
run("XGDMatrixSetFloatInfo", matrix, b"label", labels, rows)
run("XGBoosterCreate", ctypes.byref(matrix), ctypes.c_ulong(1), ctypes.byref(booster))
for name, value in ((b"device", b"cuda"), (b"tree_method", b"hist"), (b"max_depth", b"2")):
    run("XGBoosterSetParam", booster, name, value)
run("XGBoosterUpdateOneIter", booster, 0, matrix)
