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
#include "cache/checked_file.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "platform/memory_file.h"
#include "platform/process_tree.h"

namespace lazyck::rt {

namespace {

constexpr char k_proc[] = "/proc/";
constexpr std::size_t k_longest = 4000;  // a path has at most 4,096 bytes
constexpr unsigned k_mode = 0500;        // of a copy

void* open_with(int flags, const std::string& name, std::string& reason) {
    void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | flags);
    if (handle == nullptr) {
        const char* const text = dlerror();
        reason = text == nullptr ? name : text;
    }
    return handle;
}

// Replaces the descriptor's path, whose number is soon another file's, with `path` in the name by
// which debuggers, dladdr and stack traces look for the file. Returns false if the name is no
// longer a descriptor's path.
//
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

// Makes a debugger read the names of loaded objects again. Debuggers read an object's name while it
// is loaded, and gdb reads all of them again when one is unloaded. So this loads an object that is
// unloaded at once, before gdb hears of it, because it needs a library that cannot exist. The
// object is a file in memory, so that no other file can be taken for it. The loader runs, so no
// lock may be held.
void refresh_debugger() {
    const UniqueFd file = is_traced() ? make_empty_library({"/dev/null/lazyck"}) : UniqueFd();
    if (!file) return;
    const std::string name = k_proc + std::to_string(getpid()) + "/fd/" + std::to_string(file.get());
    if (void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) dlclose(handle);
    dlerror();
}

bool is_same(const struct stat& one, const struct stat& other) {
    return one.st_dev == other.st_dev && one.st_ino == other.st_ino && one.st_size == other.st_size;
}

}  // namespace

// To resolve references in an opened library and its dependencies, the loader searches that
// library's dependencies, breadth first. So the library is loaded as a dependency of an empty
// library, after those that shall come first. The empty one is a page in a memory file. It must
// stay loaded as long as the libraries that it needs, because the loader searches by its list.
void* open_library(const Strings& before, const std::string& name, std::string& reason) {
    if (before.empty()) return open_with(0, name, reason);
    Strings names = before;
    names.push_back(name);
    const UniqueFd memory = make_empty_library(names);
    struct stat st;
    if (!memory || fstat(memory.get(), &st) != 0) {
        reason = "no memory file for the list of libraries that come before it: " + system_text(errno);
        return nullptr;
    }
    const std::string path = "/proc/self/fd" + mark_in_path(st) + std::to_string(memory.get());
    return open_with(0, path, reason) == nullptr ? nullptr : open_with(RTLD_NOLOAD, name, reason);
}

UniqueFd NamedCopies::copy(int fd) {
    for (const std::string& parent : PrivateDirectories::parents()) {
        std::string path;
        {
            const std::lock_guard<std::mutex> guard(m_mutex);
            path = m_directories.below(
                parent, [&](int directory) { return !has_blank(parent) && reason_to_copy(directory).empty(); });
            if (path.empty()) continue;
            path += "/" + std::to_string(++m_count) + ".so";
        }
        UniqueFd copy = open_file(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, k_mode);
        if (copy && copy_file(fd, copy.get())) return copy;
        if (copy) unlink(path.c_str());
    }
    return UniqueFd();
}

void NamedCopies::close() {
    const std::lock_guard<std::mutex> guard(m_mutex);
    m_directories.close();
}

CheckedFile::CheckedFile(UniqueFd file, std::string path, const struct stat& status)
    : m_path(std::move(path)), m_status(status), m_file(std::make_shared<const UniqueFd>(std::move(file))) {}

// Returns the name to load the file by, or an empty string where no /proc shows this process.
std::string CheckedFile::loader_name(int fd, const struct stat& identity) const {
    const std::string mark = mark_in_path(identity);
    const std::string number = std::to_string(fd);
    const std::size_t room = m_path.size() < k_longest ? m_path.size() : 0;
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

void* CheckedFile::load(std::mutex& moments, const Before& before, NamedCopies* copies, std::string& reason) {
    std::shared_ptr<const UniqueFd> file;
    {
        const std::lock_guard<std::mutex> guard(moments);
        if (m_handle != nullptr) return m_handle;
        file = m_file;
    }
    struct stat st;
    // A program may close descriptors that it does not know, as a daemon does.
    if (fstat(file->get(), &st) != 0 || !is_same(st, m_status)) {
        reason = m_path + ": this program closed the descriptor of the checked file before it was loaded";
        return nullptr;
    }
    UniqueFd copy;
    const std::string why_copied = reason_to_copy(file->get());
    if (copies != nullptr && (!why_copied.empty() || has_blank_in_path(file->get()))) copy = copies->copy(file->get());
    if (!copy && !why_copied.empty()) copy = copy_to_memory(file->get());
    if (copy ? fstat(copy.get(), &st) != 0 : !why_copied.empty()) {
        const int error = errno;
        reason = m_path + ": its file system " + why_copied +
                 ", and there is no memory file to copy it to: " + system_text(error);
        return nullptr;
    }
    const std::string name = loader_name(copy ? copy.get() : file->get(), st);
    void* handle = nullptr;
    if (!name.empty()) {
        handle = open_library(before(name), name, reason);
        if (handle == nullptr) {
            const std::size_t at = reason.find(name);
            if (at != std::string::npos) reason.replace(at, name.size(), m_path);
        }
    } else if (!why_copied.empty()) {
        reason = m_path + ": its file system " + why_copied + ", and without /proc a copy in memory has no name";
    } else {
        handle = load_by_path(before, reason);
    }
    if (handle == nullptr) return nullptr;
    bool is_renamed = false;
    link_map* map = nullptr;
    if (dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0) map = nullptr;
    {
        const std::lock_guard<std::mutex> guard(moments);
        if (!name.empty()) is_renamed = set_shown_name(map, m_path);
        m_handle = handle;
        m_file.reset();
    }
    if (is_renamed) refresh_debugger();
    return handle;
}

void* CheckedFile::load_by_path(const Before& before, std::string& reason) const {
    void* const handle = open_library(before(m_path), m_path, reason);
    if (handle == nullptr) return nullptr;
    struct stat st;
    if (lstat(m_path.c_str(), &st) == 0 && is_same(st, m_status)) return handle;
    dlclose(handle);
    reason = m_path +
             ": another file was put in its place while it was loaded (with /proc mounted, the one that was"
             " checked is loaded)";
    return nullptr;
}

}  // namespace lazyck::rt
