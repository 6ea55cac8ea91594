"""List the projects, smallest first."""

from world.project import CTEST, CTEST_RESULTS, Debian, Project, PyPI, Results, cmake

ABSEIL_TESTS = (
    *("absl_match_test", "absl_escaping_test", "absl_numbers_test", "absl_str_split_test", "absl_str_format_test"),
    *("absl_cord_test", "absl_flat_hash_map_test", "absl_raw_hash_set_test", "absl_inlined_vector_test"),
    *("absl_mutex_test", "absl_notification_test", "absl_blocking_counter_test"),
)
RE2_TESTS = (
    *("charclass_test", "compile_test", "filtered_re2_test", "mimics_pcre_test", "parse_test", "possible_match_test"),
    *("re2_test", "re2_arg_test", "regexp_test", "required_prefix_test", "search_test", "set_test", "simplify_test"),
    "string_generator_test",
)
RE2_PROGRAMS = {kind: " ".join(f"obj/{kind}test/{name}" for name in RE2_TESTS) for kind in ("", "so/")}
COPY = 'cp -a "$SOURCE/." .\n'  # for a project that builds in its own source tree

PROJECTS = (
    Project(
        "double-conversion",
        Debian("double-conversion"),
        "CMake, ninja",
        ("double-conversion/*.cc",),
        cmake("-DBUILD_SHARED_LIBS=ON", "-DBUILD_TESTING=ON"),
        CTEST,
        CTEST_RESULTS,
    ),
    Project(
        "jansson",
        Debian("jansson"),
        "CMake, ninja (C)",
        ("src/*.c",),
        cmake("-DJANSSON_BUILD_SHARED_LIBS=ON", "-DJANSSON_BUILD_DOCS=OFF", "-DJANSSON_EXAMPLES=OFF"),
        CTEST,
        CTEST_RESULTS,
    ),
    Project(
        "pugixml",
        Debian("pugixml"),
        "CMake, ninja",
        ("src/*.cpp",),
        cmake("-DBUILD_SHARED_LIBS=ON", "-DPUGIXML_BUILD_TESTS=ON"),
        CTEST,
        CTEST_RESULTS,
    ),
    Project(
        "snappy",
        Debian("snappy"),
        "CMake, ninja, without RTTI",
        ("*.cc", "!*test*", "!*fuzzer*", "!*benchmark*"),
        cmake("-DBUILD_SHARED_LIBS=ON", "-DSNAPPY_BUILD_BENCHMARKS=OFF"),
        CTEST,
        CTEST_RESULTS,
        packages=("libgtest-dev", "libgmock-dev"),
    ),
    Project(
        "brotli",
        Debian("brotli"),
        "CMake, ninja (C)",
        ("c/common/*.c", "c/dec/*.c", "c/enc/*.c"),
        cmake(),
        CTEST,
        CTEST_RESULTS,
    ),
    Project(
        "jsoncpp",
        Debian("libjsoncpp"),
        "meson",
        ("src/lib_json/*.cpp",),
        COPY + 'meson setup --buildtype=release build\nninja -C build -j "$JOBS"',
        'meson test -C build --no-rebuild --num-processes "$TEST_JOBS"\ncp build/meson-logs/testlog.junit.xml "$OUT"',
        Results(junit=("testlog.junit.xml",)),
    ),
    Project(
        "cppunit",
        Debian("cppunit"),
        "configure, make, libtool",
        ("src/cppunit/*.cpp",),
        '"$SOURCE/configure" --disable-html-docs --disable-doxygen\nmake -j "$JOBS"\n'
        # This only makes the programs. `true` stands for each program, also for one that is
        # expected to fail.
        'make -k -j "$JOBS" check LOG_COMPILER=true || test -x examples/cppunittest/cppunittestmain',
        'make -k -j "$TEST_JOBS" check',
        Results(trs=("**/*.trs",)),
    ),
    Project(
        "yaml-cpp",
        Debian("yaml-cpp"),
        "CMake, ninja",
        ("src/**/*.cpp",),
        cmake("-DYAML_BUILD_SHARED_LIBS=ON", "-DYAML_CPP_BUILD_TESTS=ON", "-DYAML_CPP_BUILD_TOOLS=OFF"),
        CTEST,
        CTEST_RESULTS,
        packages=("googletest", "libgtest-dev", "libgmock-dev"),
    ),
    Project(
        "kiwisolver",
        PyPI(
            "kiwisolver==1.4.8",
            "kiwisolver-1.4.8.tar.gz",
            "23d5f023bdc8c7e54eb65f03ca5d5bb25b601eac4d7f1a042888a1f45237987e",
        ),
        "pip wheel: setuptools",
        ("py/src/*.cpp",),
        COPY + "pip install -q --no-build-isolation --no-deps --no-cache-dir -t site .",
        'PYTHONPATH=site python -m pytest -q -p no:cacheprovider py/tests --junitxml "$OUT/pytest.xml"',
        Results(junit=("pytest.xml",)),
        python=("cppy>=1.3", "setuptools>=70", "setuptools_scm[toml]>=8", "wheel", "pytest"),
    ),
    Project(
        "leveldb",
        Debian("leveldb"),
        "CMake, ninja, shared and static",
        ("*/*.cc", "helpers/memenv/memenv.cc", "!benchmarks/*", "!*/*test*", "!db/leveldbutil.cc"),
        "\n".join(
            f'cmake -S "$SOURCE" -B {kind} -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS={shared} '
            f'-DLEVELDB_BUILD_BENCHMARKS=OFF\nninja -C {kind} -j "$JOBS"'
            for kind, shared in (("shared", "ON"), ("static", "OFF"))
        ),
        # The tests of both would use one directory at the same time.
        "\n".join(
            f"(cd {kind} && mkdir -p tmp && TEST_TMPDIR=$PWD/tmp GTEST_OUTPUT=xml:$OUT/{kind}/ {CTEST}) || status=1\n"
            f'mv "$OUT/ctest.xml" "$OUT/{kind}.xml"'
            for kind in ("shared", "static")
        )
        + "\nexit ${status:-0}",
        Results(junit=("shared.xml", "static.xml", "shared/*.xml", "static/*.xml")),
        packages=("libgtest-dev", "libgmock-dev", "libbenchmark-dev"),
    ),
    Project(
        "fmt",
        Debian("fmtlib"),
        "CMake, ninja",
        ("src/format.cc", "src/os.cc"),
        cmake("-DFMT_DOC=OFF", "-DBUILD_SHARED_LIBS=ON"),
        CTEST,
        CTEST_RESULTS,
        packages=("googletest",),
    ),
    Project(
        "libzip",
        Debian("libzip"),
        "CMake, ninja (C, hidden visibility)",
        ("lib/*.c", "lib/zip_err_str.c"),
        cmake("-DBUILD_SHARED_LIBS=ON", "-DBUILD_DOC=OFF", "-DBUILD_EXAMPLES=OFF"),
        CTEST,
        CTEST_RESULTS,
        packages=("zlib1g-dev", "libbz2-dev", "libssl-dev", "unzip", "perl"),
    ),
    Project(
        "zstd",
        Debian("libzstd"),
        "CMake, ninja (C), shared and static",
        ("lib/*/*.c",),
        "cmake -G Ninja -DCMAKE_BUILD_TYPE=Release -DZSTD_BUILD_TESTS=ON "
        '-DZSTD_FUZZER_FLAGS="-s1;-i100" -DZSTD_ZSTREAM_FLAGS="-s1;-i50" -DZSTD_FULLBENCH_FLAGS=-i1 '
        '"$SOURCE/build/cmake"\nninja -j "$JOBS"',
        CTEST,
        CTEST_RESULTS,
        packages=("zlib1g-dev", "liblzma-dev", "file"),
    ),
    Project(
        "re2",
        Debian("re2"),
        "make, shared with its version script, and static",
        (
            *("re2/*.cc", "re2/perl_groups.cc", "re2/unicode_casefold.cc", "re2/unicode_groups.cc"),
            *("util/rune.cc", "util/strutil.cc"),
        ),
        COPY + 'make -j "$JOBS" REBUILD_TABLES=1 obj/so/libre2.so ' + " ".join(RE2_PROGRAMS.values()),
        f"./runtests {RE2_PROGRAMS['']} || status=1\n"
        f"./runtests -shared-library-path obj/so {RE2_PROGRAMS['so/']} || status=1\nexit ${{status:-0}}",
        Results(lines=r"^(?P<name>obj/\S+)\s+(?:(?P<passed>PASS)|FAIL)"),
        packages=("unicode-data", "perl"),
        python=("six",),
    ),
    Project(
        "capnproto",
        Debian("capnproto"),
        "CMake, ninja",
        ("src/kj/**/*.c++", "src/capnp/**/*.c++", "!*/*test*", "!**/*-win32.c++"),
        cmake("-DBUILD_SHARED_LIBS=ON", "-DBUILD_TESTING=ON", "-DWITH_OPENSSL=OFF"),
        f"cd src\n{CTEST} -V",  # ctest knows the tests in this directory only
        Results(junit=("ctest.xml",), lines=r"^\d+: \[ (?:(?P<passed>PASS)|FAIL) \] (?P<name>.+?)(?: \(.*)?$"),
        packages=("zlib1g-dev",),
    ),
    Project(
        "abseil",
        Debian("abseil"),
        "CMake, ninja: 12 tests of strings, container, synchronization",
        ("absl/**/*.cc", "!*test*", "!*benchmark*", "!**/testing/*"),
        "cmake -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_STANDARD=17 -DBUILD_SHARED_LIBS=ON -DBUILD_TESTING=ON "
        '-DABSL_BUILD_TESTING=ON -DABSL_USE_GOOGLETEST_HEAD=OFF "$SOURCE"\n'
        f'ninja -j "$JOBS" {" ".join(ABSEIL_TESTS)}',
        f"{CTEST} -R '^({'|'.join(ABSEIL_TESTS)})$'",
        CTEST_RESULTS,
        packages=("googletest", "libgtest-dev", "libgmock-dev"),
    ),
)
BY_NAME = {project.name: project for project in PROJECTS}
