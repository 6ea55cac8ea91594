#include "platform/read_rule.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "lazyck_abi.h"
#include "platform/environment.h"

namespace lazyck::rt {

namespace {

// The kernel's interface, which older headers lack (linux/landlock.h). The numbers are the same on
// every machine.
constexpr long k_add_rule = 445, k_path_beneath = 1;
constexpr long k_version_with_moves = 2;
constexpr std::uint64_t k_execute = 1 << 0, k_read_file = 1 << 2, k_read_directory = 1 << 3, k_move = 1 << 13;

struct Ruleset {
    std::uint64_t handled;
};

struct __attribute__((packed)) PathBeneath {
    std::uint64_t allowed;
    std::int32_t parent;
};

void allow(int ruleset, int file, std::uint64_t access) {
    const PathBeneath rule = {access, file};
    syscall(k_add_rule, ruleset, k_path_beneath, &rule, 0);
}

}  // namespace

ReadRule::ReadRule(const Strings& paths, int own) {
    if (!environment(LAZYCK_TEST_UNRESTRICTED).empty()) return;
    const long version = syscall(LAZYCK_LANDLOCK_CREATE_RULESET, nullptr, 0, LAZYCK_LANDLOCK_ASK_VERSION);
    if (version < 1) return;
    // Where moves are not handled, all moves to other directories are forbidden.
    const std::uint64_t moves = version >= k_version_with_moves ? k_move : 0;
    const std::uint64_t reads = k_execute | k_read_file | k_read_directory;
    const Ruleset handled = {reads | moves};
    m_fd = UniqueFd(static_cast<int>(syscall(LAZYCK_LANDLOCK_CREATE_RULESET, &handled, sizeof handled, 0)));
    if (!m_fd) return;
    allow(m_fd.get(), own, handled.handled);
    for (const std::string& path : paths) {
        const UniqueFd file(open(path.c_str(), O_PATH | O_CLOEXEC));
        struct stat st;
        if (!file || fstat(file.get(), &st) != 0) continue;
        allow(m_fd.get(), file.get(), S_ISDIR(st.st_mode) ? reads : reads & ~k_read_directory);
    }
}

}  // namespace lazyck::rt
