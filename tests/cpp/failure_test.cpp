#include "base/failure.h"

#include <cerrno>
#include <csignal>

#include "unit_support.h"

namespace lazyck::rt {

using unit::has;
using unit::message_of;

TEST_CASE("a compiler that ran to its end and said why has refused the code for good") {
    CHECK(is_final({true, 1, 0, "x.cpp:1: error: oops"}));
    CHECK(!is_final({true, 0, 0, "warning"}));
    CHECK(!is_final({false, 1, SIGKILL, "error"}));
    CHECK(!is_final({true, 1, 0, ""}));
    CHECK(!is_final({true, 1, 0, " \t\r\n"}));
    CHECK(!is_final({true, 1, 0, "No space left on device"}));
    CHECK(is_final({true, 128, 0, "error"}));
    CHECK(is_final({true, 131, 0, "error"}));
    for (const int signal : {1, 2, 7, 9, 14, 15, 24, 25}) CHECK(!is_final({true, 128 + signal, 0, "error"}));
    for (const PassingSign& sign : k_signs_of_passing) CHECK(!is_final({true, 1, 0, std::string("g++: ") + sign.text}));
}

TEST_CASE("a lack of memory is told by the compiler or by the kernel's signal") {
    CHECK(is_of_memory({false, 0, SIGKILL, ""}));
    CHECK(is_of_memory({true, 137, 0, ""}));
    CHECK(!is_of_memory({false, 137, 0, ""}));
    CHECK(!is_of_memory({false, 0, SIGTERM, ""}));
    CHECK(!is_of_memory({true, 1, 0, "error: oops"}));
    CHECK(is_of_memory({true, 1, 0, "cc1plus: OUT OF MEMORY allocating 1 bytes"}));
    CHECK(is_of_memory({true, 1, 0, "g++: fatal error: Killed signal terminated program cc1plus"}));
    CHECK(!is_of_memory({true, 1, 0, "Terminated signal terminated program cc1plus"}));
}

TEST_CASE("complaints about a file system name its error") {
    CHECK(storage_error_in("fatal error: NO SPACE left on device") == ENOSPC);
    CHECK(storage_error_in("Disk quota exceeded") == EDQUOT);
    CHECK(storage_error_in("error: oops") == 0);
    CHECK(is_storage_error(ENOSPC));
    CHECK(is_storage_error(EROFS));
    for (const int error : {0, EINTR, EAGAIN, ENOMEM, EMFILE, ENFILE}) CHECK(!is_storage_error(error));
}

TEST_CASE("of what a compiler says, its first error counts, else its last line") {
    CHECK(first_error("") == "the compiler said nothing");
    CHECK(first_error("one\ntwo\n\n \t\r\n") == "two");
    CHECK(first_error("note\nx.cpp:1: error: one\nx.cpp:2: error: two\nlast\n") == "x.cpp:1: error: one");
    for (const char* said : {"nvcc error   : it died", "ptxas Error: no", "x.o: undefined reference to `f'",
                             "ld.lld: undefined symbol: f"})
        CHECK(first_error(std::string("before\n") + said + "\nafter") == said);
    // A driver's own line about its linker says nothing.
    CHECK(first_error("collect2: error: ld returned 1\nwhy\n") == "why");
    CHECK(first_error("clang: error: linker command failed with exit code 1\nwhy\n") == "why");
    const std::string longest = "error: " + std::string(493, 'x');
    CHECK(first_error(longest) == longest);
    CHECK(first_error(longest + "y") == longest);
    CHECK(first_error(std::string(501, 'x')) == std::string(500, 'x'));
}

TEST_CASE("the host's name is the system's") {
    char name[256] = {};
    REQUIRE(gethostname(name, sizeof name - 1) == 0);
    CHECK(host_name() == name);
}

TEST_CASE("failures carry their parts and hide no control characters") {
    try {
        fail<PermanentFailure>("one\ntwo\x1b", {"blob", "log", "command"});
        FAIL("nothing was thrown");
    } catch (const PermanentFailure& e) {
        CHECK(std::string(e.what()) == "one\ntwo\\x1b");
        CHECK(std::string(e.blob()) == "blob");
        CHECK(std::string(e.log()) == "log");
        CHECK(std::string(e.command()) == "command");
    }
    CHECK_THROWS_AS(fail<OutOfMemory>("x", {}), OutOfMemory);
    try {
        fail_system("cannot do it", ENOSPC);
        FAIL("nothing was thrown");
    } catch (const SystemFailure& e) {
        CHECK(std::string(e.what()) == "lazyck: cannot do it: No space left on device");
        CHECK(e.error() == ENOSPC);
    }
    CHECK(message_of([] { fail("plain"); }) == "plain");
}

}  // namespace lazyck::rt
