"""Test OpenTelemetry's spans of what a lazy library compiles and loads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import REPOSITORY
from support.four_blobs import BLOBS, CALLER, HEADER, MAIN, SYMBOLS, slow_compiler
from support.lazylib import LazyLibrary, build_lazy_library


@pytest.fixture
def lib(tmp_path: Path, objects_dir: Path) -> LazyLibrary:
    where = tmp_path / "lib"
    where.mkdir()
    made = build_lazy_library(where, objects_dir, BLOBS, MAIN, header=HEADER, symbols=SYMBOLS)
    made.program(CALLER)
    return made


def python(lib: LazyLibrary, text: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
    head = f"import sys, lazyck, lazyck.telemetry\nlib = lazyck.load({str(lib.library)!r})\n"
    return lib.call(sys.executable, "-c", head + text, env={"PYTHONPATH": path})


REQUEST = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
with trace.get_tracer("engine").start_as_current_span("request"), lazyck.telemetry.spans(lib):
    lib.prefetch(["one"]).wait()
    lib._handle._Z4callii(1, 10)
    try:
        lib.prefetch(["two"]).wait()
    except lazyck.CompileError:
        pass
lib._handle._Z4callii(3, 10)  # is heard by nobody
*found, request = exporter.get_finished_spans()
assert request.name == "request"
for span in found:
    assert span.parent.span_id == request.context.span_id, span.name
    assert request.start_time <= span.start_time + 10**7 and span.end_time <= request.end_time + 10**7, span.name
    if span.name != "lazyck.wait":
        of = span.attributes
        print(span.name, of["lazyck.blob"], of["lazyck.library"], span.status.status_code.name)
compile, failed = (span for span in found if span.name == "lazyck.compile")
assert compile.end_time - compile.start_time > 2 * 10**8
assert compile.attributes["lazyck.peak_memory"] > 1 << 20 and compile.attributes["lazyck.size"] > 0
assert compile.attributes["lazyck.arch"]
assert "error: no" in failed.status.description, failed.status.description
"""


def test_a_compile_is_a_span_of_the_request_that_waits_for_it(lib: LazyLibrary) -> None:
    pytest.importorskip("opentelemetry.sdk")
    slow_compiler(lib, 'case " $* " in *two.cpp*) echo "error: no"; exit 1 ;; *) sleep 0.2 ;; esac;')
    done = python(lib, REQUEST)
    assert done.returncode == 0, done
    assert done.stdout.splitlines() == [
        "lazyck.compile one demo UNSET",
        "lazyck.load one demo UNSET",
        "lazyck.compile two demo ERROR",
    ]


def test_without_opentelemetry_the_error_says_what_to_install(lib: LazyLibrary) -> None:
    done = python(lib, "sys.modules['opentelemetry'] = None\nwith lazyck.telemetry.spans(lib): pass\n")
    assert "LazyckError: spans need opentelemetry" in done.stderr and "pip install opentelemetry-sdk" in done.stderr
