// The loader is given "/proc/<pid>/fd/<n>", which the kernel resolves to the open file itself. It
// is not given /proc/self, because a debugger, which opens what is being loaded, would open a
// descriptor of its own, and would never return if that is a pipe.
//
// The loader takes two objects of one name for one object before it looks at the files, and
// descriptor numbers are used again. So the name also spells the file's identity, in a way that the
// kernel skips ('/' and './' between two components). Files that are loaded together differ in it,
// since a mapped file's inode is not given to another one. One file under two names is mapped once.
// A counter would not do, because each lazy library of a process has a copy of this code and so a
// counter of its own.
#include "cache/loader_names.h"

#include <unistd.h>

#include <algorithm>

#include "platform/memory_file.h"

namespace lazyck::rt {

namespace {

constexpr char k_proc[] = "/proc/";
constexpr std::size_t k_longest = 4000;  // a path has at most 4,096 bytes

}  // namespace

bool is_same(const struct stat& one, const struct stat& other) {
    return one.st_dev == other.st_dev && one.st_ino == other.st_ino && one.st_size == other.st_size;
}

std::string loader_name(int fd, const struct stat& identity, std::size_t size) {
    const std::string mark = mark_in_path(identity);
    const std::string number = std::to_string(fd);
    const std::size_t room = size < k_longest ? size : 0;
    // A /proc of another process namespace knows this process only as self.
    for (const bool is_self : {false, true}) {
        const std::string lead = k_proc + (is_self ? std::string("self") : std::to_string(getpid())) + "/fd";
        struct stat st;
        // The plain name, which leads to the same file, is checked: the kernel is slow to resolve
        // the long one.
        if (stat((lead + "/" + number).c_str(), &st) != 0 || !is_same(st, identity)) continue;
        const std::size_t length = lead.size() + mark.size() + number.size();
        std::string name;
        name.reserve(std::max(room, length));
        name += lead;
        name.append(room > length ? room - length : 0, '/');
        name += mark;
        return name += number;
    }
    return "";
}

__attribute__((no_sanitize("thread"))) bool is_named(const link_map* map, const std::string& name) {
    if (map == nullptr) return false;
    const volatile char* const known = map->l_name;
    for (std::size_t i = 0; i <= name.size(); ++i) {
        if (known[i] != name.c_str()[i]) return false;
    }
    return true;
}

// The new text goes into the memory of the old one, which `loader_name` made long enough, so that a
// concurrent reader stays inside it. The loops are written by hand: the thread sanitizer watches
// strlen and its like wherever they are called from, and does not know the loader's lock, behind
// which another thread may have made the text.
__attribute__((no_sanitize("thread"))) bool set_shown_name(const link_map* map, const std::string& path) {
    if (map == nullptr) return false;
    volatile char* const name = map->l_name;
    std::size_t length = 0;
    while (name[length] != '\0') {
        if (length < sizeof k_proc - 1 && name[length] != k_proc[length]) return false;
        ++length;
    }
    if (length < sizeof k_proc - 1 || length < path.size()) return false;
    for (std::size_t i = 0; i <= path.size(); ++i) name[i] = path.c_str()[i];
    return true;
}

}  // namespace lazyck::rt
