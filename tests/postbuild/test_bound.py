"""Tests what binds a source to the very library that it is linked into."""

import pytest

from lazyck.postbuild.probe.preprocess import declares_managed, what_binds
from lazyck.postbuild.reasons import Reason, ReasonKind

MANAGED = "static __attribute__((managed)) int a; static __attribute__(( __managed__ )) int b;"
AT_START = Reason(ReasonKind.AT_START, "local-dynamic")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('int a __attribute__((section("tests")));', Reason(ReasonKind.SECTION, "tests, by way of __start_tests")),
        ('int a __attribute__((section ( "_t1")));', Reason(ReasonKind.SECTION, "_t1, by way of __start__t1")),
        ('int a __attribute__((__section__("tests")));', Reason(ReasonKind.SECTION, "tests, by way of __start_tests")),
        ("extern int __start_tests[];", Reason(ReasonKind.SECTION_BOUNDS, "__start_tests")),
        ("extern int __stop_tests;", Reason(ReasonKind.SECTION_BOUNDS, "__stop_tests")),
        ("extern char __dso_handle;", Reason(ReasonKind.SECTION_BOUNDS, "__dso_handle")),
        ("extern char etext, end;", Reason(ReasonKind.SECTION_BOUNDS, "extern char etext, end;")),
        ('extern __thread int a __attribute__((tls_model("local-dynamic")));', AT_START),
        ('auto f = dlsym(((void *) -1), "f");', Reason(ReasonKind.RTLD_NEXT)),
        ('auto f = dlvsym ( (void*)-1l, "f", "V");', Reason(ReasonKind.RTLD_NEXT)),
        ("int ok = dladdr(p, &info);", Reason(ReasonKind.DLADDR)),
        ("int ok = dladdr1 (p, &info, 0, 0);", Reason(ReasonKind.DLADDR)),
        (MANAGED, Reason(ReasonKind.MANAGED)),
    ],
)
def test_what_is_about_the_library_itself_is_found(text: str, expected: Reason) -> None:
    assert what_binds(text, takes_late_managed=False) == expected


@pytest.mark.parametrize(
    "text",
    [
        "int a;",
        'int a __attribute__((section(".text.hot")));',  # no bounds are made for such a name
        "extern void each(int* begin, int* end); struct S { int* _end; };",
        'extern __thread int a __attribute__((tls_model("global-dynamic")));',
        "int section(int); int x = section(3);",
        "int my__start_tests;",
        'auto f = dlsym(((void *) 0), "f");',
        "void dladdress(int);",
        "int managed; f(managed);",
    ],
)
def test_what_is_not_stays_lazy(text: str) -> None:
    assert what_binds(text, takes_late_managed=False) is None


def test_managed_variables_bind_only_where_they_must_be_known_early() -> None:
    assert what_binds(MANAGED, takes_late_managed=True) is None
    late = what_binds(MANAGED + "extern int __stop_a;", takes_late_managed=True)
    assert late == Reason(ReasonKind.SECTION_BOUNDS, "__stop_a")
    assert [declares_managed(text) for text in (MANAGED, "int managed;", "")] == [2, 0, 0]
