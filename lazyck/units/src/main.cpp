// lazyck-unit: compiles a part of a source, in the place of the compiler that would compile all of it.
//
//     lazyck-unit host ID SOURCE OUTPUT -- COMMAND...       its host code, an object
//     lazyck-unit entry ID SOURCE OUTPUT -- COMMAND...      the same for a library of its own
//     lazyck-unit kernel LINE SOURCE OUTPUT -- COMMAND...   a kernel's device code, a shared library
//
// and for HIP, by clang, `hip-host`, `hip-entry` and `hip-kernel`, and
//
//     lazyck-unit hip-object - SOURCE OUTPUT -- COMMAND...  what COMMAND makes, host and device at the same time
//     lazyck-unit hip-text - SOURCE OUTPUT -- COMMAND...    nothing: it only asks for that
//
// With LAZYCK_UNIT_ASKS in the environment, standard input is a socket, on which `entry`, `kernel`, `hip-kernel` and
// `hip-text` ask whether what they would make is known: a line "text" when all that decides what comes out stands in
// OUTPUT.text, and for an answer `y`, after which nothing is made, or `n`.
//
// COMMAND is the compiler's own, from SOURCE to an object. LINE is of the table that the host code's object has in its
// section .lazyck.kernels, or, for a library of its own, behind ID in its data. What `entry` and `kernel` took stands
// in OUTPUT.cost afterwards (see units.h). Status 0: made; 3: this source cannot be taken apart; else what its compiler
// says.
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>

#include "asking.h"
#include "hip_units.h"
#include "lazyck_abi.h"
#include "units.h"

namespace {

// A directory for what the steps leave, removed at the end.
class Directory {
 public:
    Directory() {
        const char* const root = std::getenv("TMPDIR");
        std::string name = std::string(root == nullptr || *root == '\0' ? "/tmp" : root) + "/lazyck-unit-XXXXXX";
        if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a directory like " + name);
        m_path = name;
    }
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;
    ~Directory() {
        if (DIR* const opened = opendir(m_path.c_str())) {
            while (const dirent* each = readdir(opened)) unlinkat(dirfd(opened), each->d_name, 0);
            closedir(opened);
        }
        rmdir(m_path.c_str());
    }
    const std::string& path() const { return m_path; }

 private:
    std::string m_path;
};

// Standard input, for this program alone: what it starts has nothing to read.
int take_input() {
    const int taken = fcntl(0, F_DUPFD_CLOEXEC, 3);
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (taken < 0 || nothing < 0 || dup2(nothing, 0) < 0) throw std::runtime_error("cannot take its standard input");
    close(nothing);
    return taken;
}

int usage() {
    std::fputs(
        "usage: lazyck-unit [hip-]host|[hip-]entry|[hip-]kernel|hip-object|hip-text WHAT SOURCE OUTPUT -- COMMAND...\n",
        stderr);
    return 2;
}

}  // namespace

int main(int count, char** words) {
    using namespace lazyck::units;
    if (count < 7 || std::string(words[5]) != "--") return usage();
    const std::string what = words[1];
    try {
        const Directory directory;
        const Job job = {Words(words + 6, words + count), words[3], directory.path(), words[4],
                         std::getenv(LAZYCK_UNIT_ASKS) == nullptr ? -1 : take_input()};
        if (what == "host") {
            make_host_unit(job, words[2], TableIn::section);
        } else if (what == "entry") {
            make_host_unit(job, words[2], TableIn::data);
        } else if (what == "kernel") {
            make_kernel_unit(job, kernel_of(words[2]));
        } else if (what == "hip-host") {
            make_hip_host_unit(job, words[2], TableIn::section);
        } else if (what == "hip-entry") {
            make_hip_host_unit(job, words[2], TableIn::data);
        } else if (what == "hip-object") {
            make_hip_object(job);
        } else if (what == "hip-text") {
            ask_for_hip_object(job);
        } else if (what == "hip-kernel") {
            make_hip_kernel_unit(job, kernel_of(words[2]));
        } else {
            return usage();
        }
        return 0;
    } catch (const Answered&) {
        return 0;
    } catch (const Refused& refused) {
        std::fprintf(stderr, "lazyck-unit: %s\n", refused.reason.c_str());
        return 3;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "lazyck-unit: %s\n", e.what());
        return 1;
    }
}
