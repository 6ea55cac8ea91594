// A file that was checked, kept open until it is loaded, so that what is loaded is what was checked.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "files.h"
#include "text.h"

namespace lazyck::rt {

class CheckedFile {
 public:
    // `path` is where `file` was found, `status` what it was when it was checked.
    CheckedFile(UniqueFd file, std::string path, const struct stat& status);

    std::uint64_t size() const { return static_cast<std::uint64_t>(m_status.st_size); }

    // The loader's handle of this very file, whatever lies at its path by now; the descriptor is closed then. Null with
    // the loader's reason. Several threads may call it: the file is mapped once. `moments` is theirs together, held for
    // moments and never while the dynamic loader works; the caller's, since a handler of fork has to know it. `before`
    // is told the name by which the loader will know the file, and answers with the loaded libraries in which what the
    // file refers to is looked up first (see company.h). `named_copy`,
    // if there is one, makes the copy that is loaded where the file's own name would not do for a GPU runtime that
    // opens what a blob is mapped from (see named_copies.h).
    using Before = std::function<Strings(const std::string& name)>;
    using NamedCopy = std::function<UniqueFd(int fd)>;
    void* load(std::mutex& moments, const Before& before, const NamedCopy& named_copy, std::string& reason);

 private:
    void* load_by_path(const Before& before, std::string& reason) const;
    std::string loader_name(int fd, const struct stat& identity) const;

    const std::string m_path;
    const struct stat m_status;
    std::shared_ptr<const UniqueFd> m_file;
    void* m_handle = nullptr;
};

}  // namespace lazyck::rt
