#include "cache/front.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "cache/loader_names.h"
#include "lazyck_abi.h"
#include "platform/files.h"
#include "platform/memory_file.h"
#include "platform/staging.h"

namespace lazyck::rt {

namespace {

constexpr char k_front_symbol[] = "lazyck.front.";
constexpr char k_shown[] = "/dev/null/lazyck.so";  // what cannot exist

std::atomic<unsigned> g_fronts{0};

// Returns a name that no other library in this process defines.
std::string new_symbol() {
    return k_front_symbol + std::to_string(reinterpret_cast<std::uintptr_t>(&g_fronts)) + "." +
           std::to_string(++g_fronts);
}

// A function that nothing defines is no error before it is called, as in a library that was opened
// with RTLD_LAZY. All others are found now.
void* open_with(int flags, const std::string& name, std::string& reason) {
    for (const int when : {RTLD_NOW, RTLD_LAZY}) {
        void* const handle = dlopen(name.c_str(), when | flags);
        if (handle != nullptr) return handle;
        const char* const text = dlerror();
        reason = text == nullptr ? name : text;
        if (reason.find("undefined symbol") == std::string::npos || reason.find(", version ") != std::string::npos)
            break;
    }
    return nullptr;
}

// Loads a library with these contents from a file in a directory of this process alone.
void* open_from_directory(const std::string& contents, int flags, std::string& reason) {
    PrivateDirectories directories(LAZYCK_DEFAULT_CACHE_NAME);
    reason = "no memory file, and no private directory, for the list of libraries that come before it";
    void* handle = nullptr;
    for (const std::string& parent : PrivateDirectories::parents()) {
        const std::string directory = directories.below(parent);
        if (directory.empty()) continue;
        const std::string path = directory + "/front.so";
        const UniqueFd file = open_file(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
        if (!file || !write_all(file.get(), contents)) continue;
        handle = open_with(flags, path, reason);
        break;
    }
    directories.close();
    return handle;
}

}  // namespace

void* open_empty(const EmptyLibrary& library, int flags, std::string& reason) {
    const std::string contents = contents_of(library);
    const UniqueFd memory = make_memory_file(false);
    struct stat st;
    const bool is_made = memory && write_all(memory.get(), contents) && fstat(memory.get(), &st) == 0;
    const std::string name = is_made ? loader_name(memory.get(), st, sizeof k_shown) : "";
    if (name.empty()) return open_from_directory(contents, flags, reason);
    void* const handle = open_with(flags, name, reason);
    const link_map* map = nullptr;
    if (handle != nullptr && dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0)
        set_shown_name(map, k_shown);
    return handle;
}

// To resolve references in an opened library and its dependencies, the loader searches the
// program's libraries, and then those of the opened one, breadth first. So the library is loaded as
// a dependency of its front, after those that shall come first.
//
// The front must stay loaded as long as what it needs, because the loader searches by its list. It
// keeps the library that this code is in from being unloaded, unless its handle is closed. If the
// program may close that library, the loader has put the front's list at the end of where that
// library's references are looked up. So this code finds the front's symbol there, and the loader
// then keeps the front for as long as this library, as it does for each library in which one has
// found a symbol. If nothing is found, the library is never unloaded.
void* open_library(const Scope& scope, const std::string& name, std::string& reason) {
    if (scope.before.empty() && scope.search.empty()) return open_with(RTLD_LOCAL, name, reason);
    EmptyLibrary library = {scope.before};
    library.needed.push_back(name);
    library.search = scope.search;
    library.symbols = {new_symbol()};
    void* const front = open_empty(library, RTLD_LOCAL | (scope.is_deep ? RTLD_DEEPBIND : 0), reason);
    if (front == nullptr) return nullptr;
    void* const handle = open_with(RTLD_LOCAL | RTLD_NOLOAD, name, reason);
    if (handle == nullptr) return nullptr;
    if (scope.stays) return handle;
    if (dlsym(RTLD_DEFAULT, library.symbols.back().c_str()) != nullptr) {
        dlclose(handle);
        dlclose(front);
    } else {
        dlerror();
    }
    return handle;
}

}  // namespace lazyck::rt
