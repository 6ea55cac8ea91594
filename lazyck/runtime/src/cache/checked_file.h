// A file that was checked and is kept open until it is loaded, so that the checked file is the one
// that is loaded.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/text.h"
#include "cache/front.h"
#include "platform/files.h"
#include "platform/staging.h"

namespace lazyck::rt {

// Makes copies of files that have names, for GPU runtimes that open the file that a blob is mapped
// from. HIP 6.0 to 6.2 looks the name up in /proc/self/maps and cuts it at the first blank. The
// name of a memory file there cannot be opened.
class NamedCopies {
 public:
    // The directories of the copies are named after `name`.
    explicit NamedCopies(std::string name) : m_directories(std::move(name)) {}

    // Returns a copy of the file `fd` in a directory of this process alone. The directory is on a
    // file system that code may be mapped from, and its path has no blank. The copy keeps its name
    // until the process ends, since HIP may open it as late as at a launch. The result is empty if
    // no directory is suitable.
    UniqueFd copy(int fd);

    // Removes the copies at the end of the process, unless a child made by fork still uses them.
    void close();

 private:
    std::mutex m_mutex;
    PrivateDirectories m_directories;
    unsigned m_count = 0;
};

class CheckedFile {
 public:
    // `path` is where `file` was found; `status` is its status at the time of the check.
    CheckedFile(UniqueFd file, std::string path, const struct stat& status);

    // Returns whether the file at `path` is this one.
    bool is_at(const std::string& path) const;
    std::uint64_t size() const { return static_cast<std::uint64_t>(m_status.st_size); }

    // Opens the file in the calling thread's table of descriptors: it was opened in `table` (see
    // run_apart). Throws CompileError.
    void move_here(const std::string& table);

    // Loads this very file, whatever lies at its path by now, and closes the descriptor. Returns
    // the loader's handle, or null with the loader's reason in `reason`. Several threads may call
    // it; the file is mapped once. If another library of this process has loaded it, a copy in
    // memory is loaded, because the other one's functions are bound to that library.
    //
    // `moments` is a mutex that these threads share, held for moments and never while the dynamic
    // loader works. It belongs to the caller, because a handler of fork has to know it. `scope`
    // gets the name by which the loader will know the file, and says where its references are
    // looked up. `copies`, if not null, makes a copy to load instead, where a GPU runtime that
    // opens the file behind a mapping could not open the file by its own name.
    using ScopeOf = std::function<Scope(const std::string& name)>;
    void* load(std::mutex& moments, const ScopeOf& scope, NamedCopies* copies, std::string& reason);

 private:
    void* load_once(UniqueFd& file, const std::string& why_copied, std::mutex& moments, const ScopeOf& scope,
                    NamedCopies* copies, bool& is_of_another, std::string& reason);
    void* load_by_path(const ScopeOf& scope, std::string& reason) const;

    const std::string m_path;
    const struct stat m_status;
    std::shared_ptr<UniqueFd> m_file;
    void* m_handle = nullptr;
};

}  // namespace lazyck::rt
