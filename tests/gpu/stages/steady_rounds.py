"""Run `python steady_rounds.py LAUNCHES ROUNDS LIBRARY...`: print as JSON the seconds of a launch
on host and device, measured with each library in turn. If CUDA reports an error, exit with it."""

import ctypes
import json
import sys

launches, rounds = int(sys.argv[1]), int(sys.argv[2])
libraries = [ctypes.CDLL(path) for path in sys.argv[3:]]
found: list[dict[str, list[float]]] = [{"host": [], "device": []} for _ in libraries]
for number in range(rounds + 1):
    for library, times in zip(libraries, found, strict=True):
        host, device = ctypes.c_double(), ctypes.c_double()
        error = library.measure(launches, ctypes.byref(host), ctypes.byref(device))
        if error:
            sys.exit(error)
        if number:  # the first round warms up
            times["host"].append(host.value)
            times["device"].append(device.value)
print(json.dumps(found))
