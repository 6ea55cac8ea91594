// Gives the unit tests of the runtime their framework, and what several of them need: a directory
// of their own, an environment that they may change, and files that the build made for them.
#pragma once

#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#define DOCTEST_CONFIG_NO_POSIX_SIGNALS
#define DOCTEST_CONFIG_SUPER_FAST_ASSERTS  // they compile faster
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/failure.h"
#include "platform/environment.h"
#include "platform/files.h"

// The generated assembler of a lazy library defines these, and no test calls them.
extern "C" {
__attribute__((visibility("hidden"))) std::atomic<void*> lazyck_slots[1];
__attribute__((visibility("hidden"))) extern const std::uint32_t lazyck_slot_count = 0;
}

namespace lazyck::rt::unit {

// A new directory, private to the user, that is removed with all its contents at the end.
class Scratch {
 public:
    Scratch() : m_path(std::filesystem::temp_directory_path() / "lazyck-unit-XXXXXX") {
        REQUIRE(mkdtemp(m_path.data()) != nullptr);
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch() {
        std::error_code ignored;
        std::filesystem::remove_all(m_path, ignored);
    }
    const std::string& path() const { return m_path; }
    std::string operator/(const std::string& name) const { return m_path + "/" + name; }

 private:
    std::string m_path;
};

// Sets variables of the environment, which the runtime reads anew, until the object is destroyed.
class Variables {
 public:
    Variables() { forget_environment_in_child(); }
    Variables(const Variables&) = delete;
    Variables& operator=(const Variables&) = delete;
    ~Variables() {
        for (const std::string& name : m_names) unsetenv(name.c_str());
        forget_environment_in_child();
    }
    void set(const std::string& name, const std::string& value) {
        setenv(name.c_str(), value.c_str(), 1);
        m_names.push_back(name);
        forget_environment_in_child();
    }

 private:
    Strings m_names;
};

inline void write_file(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

inline std::string read_file_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

// Returns the contents of a file that unit_binary.py made.
inline std::string made_file(const char* name) {
    const char* const directory = std::getenv("UNIT_DATA");
    REQUIRE_MESSAGE(directory != nullptr, "UNIT_DATA names the directory that unit_binary.py made");
    const std::string text = read_file_of(std::string(directory) + "/" + name);
    REQUIRE(!text.empty());
    return text;
}

// Calls `body`, which must throw CompileError, and returns the message.
template <typename Body>
std::string message_of(Body body) {
    try {
        body();
    } catch (const CompileError& e) {
        return e.what();
    }
    FAIL("nothing was thrown");
    return "";
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace lazyck::rt::unit
