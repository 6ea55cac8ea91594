// 5. Run. This is what a lazy program does at a first call; model.py links it into the program.
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <utility>
#include <vector>

namespace fs = std::filesystem;
extern "C" const char model_manifest[];
extern "C" std::atomic<void*> model_slots[];

// Reads the string at a place of the manifest (`render_manifest` of model.py), and moves on.
static const char* take(const char*& at) { return std::exchange(at, at + std::strlen(at) + 1); }
static std::vector<const char*> take_list(const char*& at) {
    std::vector<const char*> strings(std::stoul(take(at)));
    for (const char*& each : strings) each = take(at);
    return strings;
}

struct Blob {
    const char *entry, *text;
    std::vector<const char*> command, functions;
};

[[noreturn]] static void fail(const Blob& blob, const std::string& why) {
    std::cerr << "model: cannot make " << blob.entry << " ready: " << why << std::endl;
    std::abort();  // no function can be called; lazyck throws an exception
}

// An entry gets its name when it is complete, so nobody loads half of one. A process that is killed
// leaves files that nobody reads. Of two processes that make the same entry, either may win.
static void compile(const Blob& blob, const fs::path& entry) {
    const std::string ours = entry.string() + '.' + std::to_string(getpid()), text = ours + ".ii";
    std::vector<const char*> words(blob.command);
    words.insert(words.end(), {"-shared", text.c_str(), "-o", ours.c_str(), nullptr});
    int child = 0, status = 0;
    if (!(std::ofstream(text) << blob.text << std::flush)) fail(blob, "cannot write " + text);
    const bool runs = posix_spawn(&child, words[0], nullptr, nullptr, const_cast<char**>(words.data()), environ) == 0;
    if (!runs || waitpid(child, &status, 0) != child || status != 0) fail(blob, "cannot compile " + text);
    fs::rename(ours, entry);
    fs::remove(text);
    std::cerr << "model: compiled " << blob.entry << std::endl;
}

// Makes the blob of a slot ready: stores all its functions in their slots, and returns the slot's.
extern "C" void* model_resolve(const unsigned slot) noexcept {
    const char* manifest = model_manifest;
    Blob blob;
    unsigned first = 0;  // the number of the blob's first slot
    for (unsigned end = 0; end <= slot; end = first + blob.functions.size()) {
        first = end;
        blob = {take(manifest), take(manifest), take_list(manifest), take_list(manifest)};
    }
    const char* const home = std::getenv("HOME");
    if (home == nullptr) fail(blob, "HOME is not set");
    const fs::path cache = fs::path(home) / ".cache" / "lazyck-model", entry = cache / blob.entry;
    if (!fs::exists(entry)) {
        if (fs::create_directories(cache)) fs::permissions(cache, fs::perms::owner_all);
        // The lock ends with its process. Without a lock, two would compile: a waste, but no error.
        const int lock = open((entry.string() + ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        flock(lock, LOCK_EX);
        if (!fs::exists(entry)) compile(blob, entry);  // who had the lock before may have made it
        close(lock);  // before the loader runs, since that may run code that waits for another blob
    }
    void* const library = dlopen(entry.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) fail(blob, dlerror());
    for (const char* name : blob.functions) {
        void* const function = dlsym(library, name);
        if (function == nullptr) fail(blob, std::string("it lacks ") + name);
        model_slots[first++] = function;
    }
    return model_slots[slot];
}
