// lazyck-unit: compiles a part of a source, in place of the compiler that would compile all of it.
//
//     lazyck-unit host ID SOURCE OUTPUT -- COMMAND...       the host code, as an object
//     lazyck-unit entry ID SOURCE OUTPUT -- COMMAND...      the host code, for a library of its own
//     lazyck-unit kernel LINE SOURCE OUTPUT -- COMMAND...   a shared library with a kernel's code
//
// For HIP sources that clang compiles, there are `hip-host`, `hip-entry` and `hip-kernel`, and
//
//     lazyck-unit hip-object - SOURCE OUTPUT -- COMMAND...  what COMMAND makes, both parts at once
//     lazyck-unit hip-text - SOURCE OUTPUT -- COMMAND...    nothing: asks whether that exists
//
// If LAZYCK_UNIT_ASKS is in the environment, standard input is a socket. On it, `entry`, `kernel`,
// `hip-kernel` and `hip-text` ask whether the result exists already. They write everything that
// decides the result to OUTPUT.text, then send the line "text". The answer is `y` (nothing is made)
// or `n`.
//
// COMMAND is the compiler's own command, from SOURCE to an object. LINE is a line of the table that
// the object of the host code has in its section .lazyck.kernels, or, in a library of its own,
// behind ID in its data. `entry`, `kernel` and their HIP variants write what they cost to
// OUTPUT.cost (see units.h). The exit status is 0 if the result exists, 3 if this source cannot be
// split or one of the compiler's steps fails, 2 for wrong usage, and 1 for any other error.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

#include "lazyck_abi.h"
#include "units.h"

namespace {

// A temporary directory for what the steps write, beside the output. Compilers put its name into
// what they make, so it is equal for equal outputs.
class Directory {
 public:
    explicit Directory(const std::string& output) : m_path(output + ".steps") {
        clear();  // a process that was killed left it
        if (mkdir(m_path.c_str(), 0700) != 0) throw std::runtime_error("cannot make the directory " + m_path);
    }
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;
    ~Directory() { clear(); }
    const std::string& path() const { return m_path; }

 private:
    void clear() const {
        if (DIR* const opened = opendir(m_path.c_str())) {
            while (const dirent* each = readdir(opened)) unlinkat(dirfd(opened), each->d_name, 0);
            closedir(opened);
        }
        rmdir(m_path.c_str());
    }

    const std::string m_path;
};

// Takes standard input for this program alone and returns it. The programs that it starts read
// nothing.
int take_input() {
    const int taken = fcntl(0, F_DUPFD_CLOEXEC, 3);
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (taken < 0 || nothing < 0 || dup2(nothing, 0) < 0) throw std::runtime_error("cannot take its standard input");
    close(nothing);
    return taken;
}

using lazyck::units::TableIn;
using lazyck::units::Unit;

constexpr struct {
    std::string_view name;
    void (*make)(const Unit& unit, const std::string& what);
} k_commands[] = {
    {LAZYCK_UNIT_HOST, [](const Unit& unit, const std::string& id) { make_host_unit(unit, id, TableIn::section); }},
    {LAZYCK_UNIT_ENTRY, [](const Unit& unit, const std::string& id) { make_host_unit(unit, id, TableIn::data); }},
    {LAZYCK_UNIT_KERNEL,
     [](const Unit& unit, const std::string& line) { make_kernel_unit(unit, lazyck::units::kernel_of(line)); }},
    {LAZYCK_UNIT_HIP_HOST,
     [](const Unit& unit, const std::string& id) { make_hip_host_unit(unit, id, TableIn::section); }},
    {LAZYCK_UNIT_HIP_ENTRY,
     [](const Unit& unit, const std::string& id) { make_hip_host_unit(unit, id, TableIn::data); }},
    {LAZYCK_UNIT_HIP_KERNEL,
     [](const Unit& unit, const std::string& line) { make_hip_kernel_unit(unit, lazyck::units::kernel_of(line)); }},
    {LAZYCK_UNIT_HIP_OBJECT, [](const Unit& unit, const std::string&) { make_hip_object(unit); }},
    {LAZYCK_UNIT_HIP_TEXT, [](const Unit& unit, const std::string&) { ask_for_hip_object(unit); }},
};

}  // namespace

int main(int count, char** words) {
    const auto* const command = std::find_if(std::begin(k_commands), std::end(k_commands), [&](const auto& each) {
        return count >= 7 && words[1] == each.name && words[5] == std::string_view("--");
    });
    if (command == std::end(k_commands)) {
        std::fputs(
            "usage: lazyck-unit [hip-]host|[hip-]entry|[hip-]kernel|hip-object|hip-text WHAT SOURCE OUTPUT -- "
            "COMMAND...\n",
            stderr);
        return 2;
    }
    try {
        const Directory directory(words[4]);
        command->make({{words + 6, words + count},
                       words[3],
                       directory.path(),
                       words[4],
                       std::getenv(LAZYCK_UNIT_ASKS) == nullptr ? -1 : take_input()},
                      words[2]);
        return 0;
    } catch (const lazyck::units::Answered&) {
        return 0;
    } catch (const lazyck::units::Refused& refused) {
        std::fprintf(stderr, "lazyck-unit: %s\n", refused.reason.c_str());
        return 3;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "lazyck-unit: %s\n", e.what());
        return 1;
    }
}
