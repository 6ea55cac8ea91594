#include "cache/checked_file.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "base/failure.h"
#include "cache/loader_names.h"
#include "platform/memory_file.h"
#include "platform/process_tree.h"

namespace lazyck::rt {

namespace {

constexpr unsigned k_mode = 0500;  // of a copy

// Makes a debugger read the names of loaded objects again. Debuggers read an object's name while it
// is loaded, and gdb reads all of them again when one is unloaded. So this loads an object that is
// unloaded at once, before gdb hears of it, because it needs a library that cannot exist. The
// object is a file in memory, so that no other file can be taken for it. The loader runs, so no
// lock may be held.
void refresh_debugger() {
    std::string reason;
    if (is_traced()) open_empty({{"/dev/null/lazyck"}}, RTLD_LOCAL, reason);
}

}  // namespace

UniqueFd NamedCopies::copy(int fd) {
    for (const std::string& parent : PrivateDirectories::parents()) {
        std::string path;
        {
            const std::lock_guard<std::mutex> guard(m_mutex);
            path = m_directories.below(
                parent, [&](int directory) { return !has_blank(parent) && reason_to_copy(directory).empty(); });
            if (path.empty()) continue;
            m_directories.hold();
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
    : m_path(std::move(path)), m_status(status), m_file(std::make_shared<UniqueFd>(std::move(file))) {}

void CheckedFile::move_here(const std::string& table) {
    if (table.empty()) return;
    UniqueFd here = open_file(table + std::to_string(m_file->release()), O_RDONLY);
    if (!here) here = open_file(m_path, O_RDONLY | O_NOFOLLOW);  // without /proc
    if (!here) fail_system("cannot open '" + m_path + "'", errno);
    *m_file = std::move(here);
}

bool CheckedFile::is_at(const std::string& path) const {
    struct stat st;
    return lstat(path.c_str(), &st) == 0 && is_same(st, m_status);
}

void* CheckedFile::load(std::mutex& moments, const ScopeOf& scope, NamedCopies* copies, std::string& reason) {
    std::shared_ptr<UniqueFd> file;
    {
        const std::lock_guard<std::mutex> guard(moments);
        if (m_handle != nullptr) return m_handle;
        file = m_file;
    }
    // A file that another library of this process has loaded is bound to that library.
    std::string why_copied = reason_to_copy(file->get());
    if (!why_copied.empty()) why_copied = "its file system " + why_copied;
    bool is_of_another = false;
    void* const handle = load_once(*file, why_copied, moments, scope, copies, is_of_another, reason);
    if (!is_of_another) return handle;
    return load_once(*file, "another library has loaded it", moments, scope, copies, is_of_another, reason);
}

void* CheckedFile::load_once(UniqueFd& file, const std::string& why_copied, std::mutex& moments, const ScopeOf& scope,
                             NamedCopies* copies, bool& is_of_another, std::string& reason) {
    UniqueFd copy;
    struct stat st = m_status;
    if (copies != nullptr && (!why_copied.empty() || has_blank_in_path(file.get()))) copy = copies->copy(file.get());
    if (!copy && !why_copied.empty()) copy = copy_to_memory(file.get());
    const int error = !copy && !why_copied.empty() ? errno : 0;
    if (copy) fstat(copy.get(), &st);
    const std::string name = error == 0 ? loader_name(copy ? copy.get() : file.get(), st, m_path.size()) : "";
    // A program may close descriptors that it does not know, as a daemon does, and use their
    // numbers.
    if ((copy || name.empty()) && (fstat(file.get(), &st) != 0 || !is_same(st, m_status))) {
        file.release();
        reason = m_path + ": this program closed the descriptor of the checked file before it was loaded";
        return nullptr;
    }
    if (error != 0) {
        reason = m_path + ": " + why_copied + ", and there is no memory file to copy it to: " + system_text(error);
        return nullptr;
    }
    void* handle = nullptr;
    if (!name.empty()) {
        handle = open_library(scope(name), name, reason);
        if (handle == nullptr) {
            const std::size_t at = reason.find(name);
            if (at != std::string::npos) reason.replace(at, name.size(), m_path);
        }
    } else if (!why_copied.empty()) {
        reason = m_path + ": " + why_copied + ", and without /proc a copy in memory has no name";
    } else {
        handle = load_by_path(scope, reason);
    }
    if (handle == nullptr) return nullptr;
    bool is_renamed = false;
    link_map* map = nullptr;
    if (dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0) map = nullptr;
    {
        const std::lock_guard<std::mutex> guard(moments);
        if (m_handle != nullptr) return m_handle;
        is_of_another = !copy && !name.empty() && !is_named(map, name);
        if (is_of_another) return nullptr;
        if (!name.empty()) is_renamed = set_shown_name(map, m_path);
        m_handle = handle;
        m_file.reset();
    }
    if (is_renamed) refresh_debugger();
    return handle;
}

void* CheckedFile::load_by_path(const ScopeOf& scope, std::string& reason) const {
    void* const handle = open_library(scope(m_path), m_path, reason);
    if (handle == nullptr) return nullptr;
    if (is_at(m_path)) return handle;
    dlclose(handle);
    reason = m_path +
             ": another file was put in its place while it was loaded (with /proc mounted, the one that was"
             " checked is loaded)";
    return nullptr;
}

}  // namespace lazyck::rt
