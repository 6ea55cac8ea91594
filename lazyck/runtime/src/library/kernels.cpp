#include "library/kernels.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "lazyck_abi.h"
#include "library/library.h"
#include "machine/machine.h"
#include "platform/threads.h"

namespace {

using Words = std::array<std::uintptr_t, 10>;  // as many as any registration has

// A row of a library's table of wrapped functions, which lazyck/postbuild/link/stubs.py writes.
struct Wrapped {
    void* function;
    std::uint16_t argument;  // number of the argument that tells the handle
    std::uint16_t kind;      // LAZYCK_HANDLE_...
    std::uint32_t offset;    // in what the argument points to; of a list: the size of an element
};

// The GPU runtime's own functions, in the order of lazyck/abi.py.
using Register = std::uintptr_t(std::uintptr_t, std::uintptr_t, std::uintptr_t, std::uintptr_t, std::uintptr_t,
                                std::uintptr_t, std::uintptr_t, std::uintptr_t, std::uintptr_t, std::uintptr_t);

// The argument that a host unit's constructor passes to the function that registers images.
struct Image {
    std::uint32_t magic, version;
    const void* data;
    void* unused;
};

}  // namespace

extern "C" {
// lazyck/postbuild/link/stubs.py makes the definitions.
extern __attribute__((visibility("hidden"))) const Wrapped lazyck_wrapped[];
extern __attribute__((visibility("hidden"))) Register* const lazyck_registering[];
// Handles that are ready, each at the index that its address determines. The wrappers' fast path
// reads this table. Of its half megabyte, only the pages with a handle ever take memory.
__attribute__((visibility("hidden"))) std::atomic<const void*>
    lazyck_ready_handles[std::size_t{1} << LAZYCK_READY_HANDLE_BITS];
}

namespace lazyck::rt {

namespace {

constexpr char k_host_mark[] = LAZYCK_HOST_UNIT_MARK;
constexpr char k_whole_mark[] = LAZYCK_WHOLE_SOURCE_MARK;

constexpr std::uintptr_t k_most_dependencies = 4096;

enum class Progress { none, busy, done };

struct Registration {
    std::uint32_t role;  // LAZYCK_REGISTER_...
    Words words;
    Progress progress = Progress::none;
    std::string name;  // in device code, once it is registered

    const void* handle() const { return reinterpret_cast<const void*>(words[1]); }
    std::string name_in_device_code() const { return device_name(reinterpret_cast<const char*>(words[3])); }
};

// A host unit that is loaded.
struct Source {
    Image image;
    std::string name;
    const char* table = "";
    std::vector<Registration> registrations;
    std::vector<std::unique_ptr<Image>> images;  // images that were registered for it later
    std::vector<std::uintptr_t> modules;         // the results of registering them
};

struct Registered {
    Source* source;
    std::size_t index;
};

struct Registry {
    std::mutex mutex;  // held for moments only, never while a GPU runtime works
    Changes changed;
    std::unordered_map<std::uintptr_t, std::unique_ptr<Source>> sources;  // by the module that they got
    std::unordered_map<const void*, Registered> handles;
};

Lasting<std::unique_ptr<Registry>> g_registry;

Registry& registry() {
    return *g_registry.get([] { return std::make_unique<Registry>(); });
}

std::atomic<const void*>& ready_handle_at(const void* handle) {
    return lazyck_ready_handles[reinterpret_cast<std::uintptr_t>(handle) % std::size(lazyck_ready_handles)];
}

std::uintptr_t call(std::uint32_t role, const Words& w) {
    return lazyck_registering[role](w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9]);
}

// Returns the source that `module` stands for, or null if it is a module of the GPU runtime itself.
Source* source_of(std::uintptr_t module) {
    Registry& all = registry();
    const std::lock_guard<std::mutex> guard(all.mutex);
    const auto found = all.sources.find(module);
    return found == all.sources.end() ? nullptr : found->second.get();
}

const void* pointer_at(std::uintptr_t structure, std::size_t offset) {
    const void* value = nullptr;
    std::memcpy(&value, reinterpret_cast<const char*>(structure) + offset, sizeof value);
    return value;
}

bool is_kernel_node(std::uintptr_t parameters) {
    std::uint32_t type = 0;
    std::memcpy(&type, reinterpret_cast<const void*>(parameters), sizeof type);
    return type == 0;
}

const void* handle_in(const Wrapped& row, std::uintptr_t argument) {
    if (row.kind == LAZYCK_HANDLE_ITSELF) return reinterpret_cast<const void*>(argument);
    if (argument == 0 || (row.kind != LAZYCK_HANDLE_FIELD && !is_kernel_node(argument))) return nullptr;
    return pointer_at(argument, row.offset);
}

// Registers the device code `image` for one handle of a source or, if `handle` is null, for all
// handles that are left.
void install(Source& source, const void* image, const void* handle) {
    Registry& all = registry();
    std::vector<Registration*> mine;
    {
        std::unique_lock<std::mutex> lock(all.mutex);
        for (Registration& each : source.registrations) {
            if (each.progress != Progress::none || (handle != nullptr && each.handle() != handle)) continue;
            each.progress = Progress::busy;
            each.name = each.name_in_device_code();
            mine.push_back(&each);
        }
    }
    if (!mine.empty()) {
        auto made = std::make_unique<Image>(source.image);
        made->data = image;
        const std::uintptr_t module = call(LAZYCK_REGISTER_IMAGE, {reinterpret_cast<std::uintptr_t>(made.get())});
        for (Registration* each : mine) {
            Words words = each->words;
            words[0] = module;
            const auto name = reinterpret_cast<std::uintptr_t>(each->name.c_str());
            if (words[2] == words[3]) words[2] = name;
            words[3] = name;
            call(each->role, words);
        }
        if (lazyck_registering[LAZYCK_REGISTER_END] != nullptr) call(LAZYCK_REGISTER_END, {module});
        const std::lock_guard<std::mutex> guard(all.mutex);
        for (Registration* each : mine) each->progress = Progress::done;
        source.images.push_back(std::move(made));
        source.modules.push_back(module);
    }
    all.changed.tell();
    std::unique_lock<std::mutex> lock(all.mutex);
    all.changed.wait(lock, [&] {
        for (const Registration& each : source.registrations) {
            if (each.progress == Progress::busy && (handle == nullptr || each.handle() == handle)) return false;
        }
        return true;
    });
}

void load_kernel(const void* handle) {
    Registry& all = registry();
    Source* source = nullptr;
    Handle wanted;
    {
        const std::lock_guard<std::mutex> guard(all.mutex);
        const auto found = all.handles.find(handle);
        if (found != all.handles.end()) {
            const Registration& registration = found->second.source->registrations[found->second.index];
            if (registration.progress != Progress::done) {
                source = found->second.source;
                wanted = {source->name, source->table, registration.name_in_device_code(),
                          registration.role == LAZYCK_REGISTER_FUNCTION};
            }
        }
    }
    if (source != nullptr) {
        bool is_whole = false;
        const void* const image = Library::get().image_for(wanted, is_whole);
        install(*source, image, is_whole ? nullptr : handle);
    }
    ready_handle_at(handle).store(handle, std::memory_order_release);
}

}  // namespace

void* wrapped(std::uint32_t wrapper, const std::uintptr_t* arguments) {
    const Wrapped& row = lazyck_wrapped[wrapper];
    std::uintptr_t argument = machine::argument(arguments, row.argument);
    // CUDA 13 puts an argument before the number of a node's dependencies. No pointer is as small
    // as that number.
    if (row.kind == LAZYCK_HANDLE_LATER_NODE && argument < k_most_dependencies)
        argument = machine::argument(arguments, row.argument + 1);
    if (row.kind == LAZYCK_HANDLE_LIST) {
        const auto count = static_cast<std::uint32_t>(machine::argument(arguments, row.argument + 1));
        for (std::uint32_t i = 0; argument != 0 && i < count; ++i)
            load_kernel(pointer_at(argument + i * row.offset, 0));
    } else if (const void* const handle = handle_in(row, argument)) {
        load_kernel(handle);
    }
    return row.function;
}

const char* table_of(const std::string& source) {
    Registry& all = registry();
    const std::lock_guard<std::mutex> guard(all.mutex);
    for (const auto& each : all.sources) {
        if (each.second->name == source) return each.second->table;
    }
    return "";
}

bool is_whole_mark(const void* image) { return std::memcmp(image, k_whole_mark, sizeof k_whole_mark - 1) == 0; }

}  // namespace lazyck::rt

// The wrappers of the GPU runtime's registering functions call these.
extern "C" {

__attribute__((visibility("hidden"))) std::uintptr_t lazyck_register_image(const Image* image) {
    using namespace lazyck::rt;
    const char* const mark = static_cast<const char*>(image->data);
    if (std::memcmp(mark, k_host_mark, sizeof k_host_mark - 1) != 0)
        return call(LAZYCK_REGISTER_IMAGE, {reinterpret_cast<std::uintptr_t>(image)});
    auto source = std::make_unique<Source>();
    source->image = *image;
    source->name = mark + sizeof k_host_mark - 1;
    const char* const behind = mark + sizeof k_host_mark + source->name.size();
    constexpr char k_table[] = LAZYCK_KERNELS_VERSION "\n";
    if (std::strncmp(behind, k_table, sizeof k_table - 1) == 0) source->table = behind;
    const auto module = reinterpret_cast<std::uintptr_t>(source.get());
    Registry& all = registry();
    const std::lock_guard<std::mutex> guard(all.mutex);
    all.sources.emplace(module, std::move(source));
    return module;
}

__attribute__((visibility("hidden"))) void lazyck_register_end(std::uintptr_t module) {
    if (lazyck::rt::source_of(module) == nullptr) lazyck::rt::call(LAZYCK_REGISTER_END, {module});
}

__attribute__((visibility("hidden"))) void lazyck_unregister_image(std::uintptr_t module) {
    using namespace lazyck::rt;
    Source* const source = source_of(module);
    if (source == nullptr) {
        call(LAZYCK_UNREGISTER_IMAGE, {module});
        return;
    }
    for (const std::uintptr_t each : source->modules) call(LAZYCK_UNREGISTER_IMAGE, {each});
    Registry& all = registry();
    const std::lock_guard<std::mutex> guard(all.mutex);
    for (const Registration& each : source->registrations) {
        ready_handle_at(each.handle()).store(nullptr, std::memory_order_relaxed);
        const auto found = all.handles.find(each.handle());
        if (found != all.handles.end() && found->second.source == source) all.handles.erase(found);
    }
    all.sources.erase(module);
}

static std::uintptr_t register_thing(std::uint32_t role, const Words& words) {
    using namespace lazyck::rt;
    Source* const source = source_of(words[0]);
    if (source == nullptr) return call(role, words);
    Registry& all = registry();
    const std::lock_guard<std::mutex> guard(all.mutex);
    const Registration made = {role, words, Progress::none, ""};
    all.handles[made.handle()] = {source, source->registrations.size()};
    ready_handle_at(made.handle()).store(nullptr, std::memory_order_relaxed);
    source->registrations.push_back(made);
    return 0;
}

#define LAZYCK_REGISTERING(name, role)                                                                              \
    __attribute__((visibility("hidden"))) std::uintptr_t name(                                                      \
        std::uintptr_t a, std::uintptr_t b, std::uintptr_t c, std::uintptr_t d, std::uintptr_t e, std::uintptr_t f, \
        std::uintptr_t g, std::uintptr_t h, std::uintptr_t i, std::uintptr_t j) {                                   \
        return register_thing(role, {a, b, c, d, e, f, g, h, i, j});                                                \
    }

LAZYCK_REGISTERING(lazyck_register_function, LAZYCK_REGISTER_FUNCTION)
LAZYCK_REGISTERING(lazyck_register_variable, LAZYCK_REGISTER_VARIABLE)
LAZYCK_REGISTERING(lazyck_register_managed, LAZYCK_REGISTER_MANAGED)

__attribute__((visibility("hidden"))) std::uintptr_t lazyck_initialize_module(std::uintptr_t module) {
    using namespace lazyck::rt;
    const Visit visit;
    Source* const source = source_of(module);
    if (source == nullptr) return call(LAZYCK_INITIALIZE_MODULE, {module});
    // All of the source is made ready, as the GPU runtime asks for a module and not for a handle.
    bool is_whole = false;
    install(*source, Library::get().image_for({source->name, source->table, "", false}, is_whole), nullptr);
    return source->modules.empty() ? 0 : call(LAZYCK_INITIALIZE_MODULE, {source->modules.back()});
}
}
