#include <dlfcn.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unwind.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string_view>

#include "base/failure.h"
#include "lazyck.h"
#include "lazyck_abi.h"
#include "library/core.h"
#include "library/kernels.h"
#include "machine/machine.h"
#include "platform/glibc.h"
#include "platform/gpu.h"
#include "platform/messages.h"

namespace lazyck::rt {

namespace {

// The head of a fat binary. Behind it are the images of single archs, each with a head of its own,
// of `size` bytes in all.
struct FatBinary {
    std::uint32_t magic;
    std::uint16_t version, head_size;
    std::uint64_t size;
};
constexpr std::uint32_t k_fat_binary_magic = 0xba55ed50;

// An offload bundle begins with its mark and the number of its rows. A row is the offset and the
// size of a code object, and its name, whose length comes first.
constexpr char k_bundle_mark[] = "__CLANG_OFFLOAD_BUNDLE__";
constexpr std::size_t k_bundle_mark_size = sizeof k_bundle_mark - 1;
constexpr std::size_t k_code_object_alignment = 4096;  // as in the bundles of HIP's own compilers

struct CodeObject {
    std::string name;
    const char* data;
    std::uint64_t size;
};

template <typename T>
T value_at(const void* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

bool is_fat_binary(const void* image) {
    const auto head = value_at<FatBinary>(image);
    return head.magic == k_fat_binary_magic && head.version == 1 && head.head_size == sizeof head;
}

bool is_bundle(const void* image) { return std::memcmp(image, k_bundle_mark, k_bundle_mark_size) == 0; }

// Returns `size` zeros at the beginning of a page, which are never given back.
char* lasting_pages(std::size_t size) {
    void* const made = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) fail_system("cannot join device code for several archs", errno);
    return static_cast<char*>(made);
}

const void* join_fat_binaries(const std::vector<const void*>& images) {
    auto head = value_at<FatBinary>(images.front());
    head.size = 0;
    for (const void* const image : images) head.size += value_at<FatBinary>(image).size;
    char* const made = lasting_pages(sizeof head + head.size);
    std::memcpy(made, &head, sizeof head);
    char* at = made + sizeof head;
    for (const void* const image : images) {
        const std::uint64_t size = value_at<FatBinary>(image).size;
        std::memcpy(at, static_cast<const char*>(image) + sizeof head, size);
        at += size;
    }
    return made;
}

// Adds the code objects of a bundle. The host's row, which is empty, is the same in all bundles.
void add_code_objects(const void* bundle, std::vector<CodeObject>& all) {
    const char* const begin = static_cast<const char*>(bundle);
    const char* at = begin + k_bundle_mark_size;
    const auto count = value_at<std::uint64_t>(at);
    at += sizeof count;
    for (std::uint64_t i = 0; i < count; ++i) {
        const auto offset = value_at<std::uint64_t>(at), size = value_at<std::uint64_t>(at + 8);
        const auto length = value_at<std::uint64_t>(at + 16);
        at += 24;
        if (size > 0 || all.empty()) all.push_back({std::string(at, length), begin + offset, size});
        at += length;
    }
}

void append(std::string& text, std::uint64_t value) {
    text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::uint64_t aligned(std::uint64_t size) {
    return (size + k_code_object_alignment - 1) / k_code_object_alignment * k_code_object_alignment;
}

const void* join_bundles(const std::vector<const void*>& images) {
    std::vector<CodeObject> all;
    for (const void* const image : images) add_code_objects(image, all);
    std::uint64_t offset = k_bundle_mark_size + sizeof offset;
    for (const CodeObject& each : all) offset += 3 * sizeof offset + each.name.size();
    std::string head(k_bundle_mark, k_bundle_mark_size);
    append(head, all.size());
    std::vector<std::uint64_t> offsets;
    for (const CodeObject& each : all) {
        offsets.push_back(aligned(offset));
        offset = offsets.back() + each.size;
        for (const std::uint64_t value : {offsets.back(), each.size, std::uint64_t{each.name.size()}})
            append(head, value);
        head += each.name;
    }
    char* const made = lasting_pages(offset);
    std::memcpy(made, head.data(), head.size());
    for (std::size_t i = 0; i < all.size(); ++i) std::memcpy(made + offsets[i], all[i].data, all[i].size);
    return made;
}

// Joins images of device code that are for one arch each. A GPU runtime is given one image for a
// kernel, and takes the code of each of its devices from there. Returns an image with the code of
// all `images`, each of which is a fat binary of CUDA or an offload bundle of clang. It stays for
// as long as the process lives, as a GPU runtime reads it at any time. Throws CompileError if the
// images are not all of one of these forms.
const void* join_images(const std::vector<const void*>& images) {
    if (std::all_of(images.begin(), images.end(), is_fat_binary)) return join_fat_binaries(images);
    if (std::all_of(images.begin(), images.end(), is_bundle)) return join_bundles(images);
    fail("lazyck: device code for several archs cannot be joined: it is of an unknown form");
}

// Returns where the loader put the file. Another thread may have loaded it. The loader's lock,
// which the thread sanitizer does not see, orders this read.
__attribute__((noinline, no_sanitize("thread"))) std::uintptr_t load_base(void* handle) {
    const link_map* map = nullptr;
    return dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0 ? map->l_addr : 0;
}

_Unwind_Reason_Code stop_unwinding(_Unwind_Context*, void*) { return _URC_END_OF_STACK; }

// Makes the unwinders of this library and of the blob with this `handle` ready for each other's
// exceptions. A library that was linked with -static-libgcc has its own copy of the unwinder. To
// catch an exception that another copy throws, functions of the catching frame's copy are called
// (_Unwind_SetGR). They abort unless that copy has unwound something before, because libgcc fills
// its table of register sizes at the first unwinding. So each copy is made to look at one frame.
void introduce_unwinders(void* handle) {
    static machine::Flag s_has_looked{false};
    if (!s_has_looked.exchange(true)) _Unwind_Backtrace(stop_unwinding, nullptr);
    if (!may_ask_loader()) return;
    const auto theirs = reinterpret_cast<decltype(&_Unwind_Backtrace)>(dlsym(handle, "_Unwind_Backtrace"));
    if (theirs != nullptr && theirs != &_Unwind_Backtrace) theirs(stop_unwinding, nullptr);
}

// Returns whether the object that is loaded at `base` has a symbol where the checked file has
// `symbol`.
bool has_symbol_at(std::uintptr_t base, const DynamicSymbol& symbol) {
    Dl_info info;
    void* row = nullptr;
    if (dladdr1(reinterpret_cast<void*>(base + symbol.value), &info, &row, RTLD_DL_SYMENT) == 0) return false;
    return row != nullptr && static_cast<const ElfW(Sym)*>(row)->st_value == symbol.value;
}

// Returns the function that a symbol of a loaded blob stands for.
void* function_at(std::uintptr_t base, const DynamicSymbol& symbol) {
    void* const code = reinterpret_cast<void*>(base + symbol.value);
    return symbol.is_ifunc ? machine::call_resolver(code) : code;
}

// Loads the file of a blob after this library. A blob with header state is loaded after other blobs
// with such state, too. All of them then use the state of the first one in the list, as when a
// linker takes the first of several definitions.
//
// The blob is put into the list before it is loaded, since no lock is held while the loader works.
// If another thread meanwhile loads a later blob, the loader loads both, and this call then finds
// the blob loaded.
void* open_blob(Core& core, const ManifestView& manifest, const BlobRow& blob, const Entry& entry,
                std::string& reason) {
    const Scope& own = core.scope.get([&] { return own_scope(core.blobs.path()); });
    if (!own.before.empty() && is_being_closed()) {
        const std::string name(blob.name);
        fail(
            "lazyck: cannot load blob '" + visible(name) +
                "': its first call is in a destructor of its library, which is being closed (dlclose)\n  hint: call it "
                "once before, or leave its source out of --blobs",
            {name, "", ""});
    }
    forget_constructors();
    std::string listed;
    const auto unlist = [&] {
        Strings& holders = core.states.state_holders;
        holders.erase(std::remove(holders.begin(), holders.end(), listed), holders.end());
    };
    const auto scope = [&](const std::string& name) {
        Scope all = own;
        all.stays = entry.header_state == HeaderState::unique;
        if (entry.header_state == HeaderState::none) return all;
        const std::lock_guard<std::mutex> guard(core.states.mutex);
        if (!listed.empty()) unlist();
        Strings& holders = core.states.state_holders;
        auto holder = std::find(holders.begin(), holders.end(), name);
        if (holder == holders.end()) {
            holder = holders.insert(holder, name);
            listed = name;
        }
        all.before.insert(all.before.end(), holders.begin(), holder);
        return all;
    };
    const GpuRuntime* const gpu = gpu_runtime_of(manifest.recipe_toolchain(blob.recipe));
    NamedCopies* const copies = gpu != nullptr && gpu->reads_file != 0 ? core.store.named_copies.get() : nullptr;
    void* const handle = entry.file->load(core.states.mutex, scope, copies, reason);
    if (handle == nullptr && !listed.empty()) {
        const std::lock_guard<std::mutex> guard(core.states.mutex);
        unlist();
    }
    return handle;
}

// Loads the file of an entry, and returns the addresses of its functions. `archs` is for messages.
std::vector<void*> functions_of(Core& core, BlobId blob, const Entry& entry, const std::string& archs) {
    const ManifestRow at = core.blobs.row(blob);
    const BlobRow description = at.blob();
    const double start = now_seconds();
    std::string reason;
    void* const handle = open_blob(core, at.manifest, description, entry, reason);
    if (handle == nullptr) {
        const Subject subject = subject_of(at.manifest, description, archs);
        log_message(Level::error, "could not load " + subject.words,
                    {LAZYCK_EVENT_LOAD, subject, now_seconds() - start, "failed"});
        fail<RefusedByLoader>("lazyck: cannot load blob '" + visible(description.name) +
                                  "': " + explain_load_error(reason, core.blobs.path()),
                              {description.name, "", ""});
    }
    introduce_unwinders(handle);
    const std::uintptr_t base = load_base(handle);
    if (!entry.functions.empty() && !has_symbol_at(base, entry.functions[0])) {
        fail("lazyck: the loaded blob '" + visible(description.name) + "' (" + entry.path + ") does not have '" +
                 at.manifest.symbols_of(description).at(0) +
                 "' where its file says; is a file of an older version still loaded?",
             {description.name, "", ""});
    }
    // The entry's own table is used, because dlsym would find this library's stub of that name,
    // which comes before the blob.
    std::vector<void*> functions;
    for (const DynamicSymbol& symbol : entry.functions) functions.push_back(function_at(base, symbol));
    return functions;
}

}  // namespace

void load_entry(Core& core, BlobId blob, const Entry& entry, const std::string& archs) {
    const ManifestRow at = core.blobs.row(blob);
    const Subject subject = subject_of(at.manifest, at.blob(), archs);
    Event event(LAZYCK_EVENT_LOAD, subject);
    event.what = entry.origin;
    event.size = entry.file->size();
    event.start = now_seconds();
    std::vector<void*> functions;
    try {
        functions = functions_of(core, blob, entry, archs);
        if (!entry.others.empty()) {
            std::vector<const void*> images = {functions.at(0)};
            for (const Entry& other : entry.others) {
                event.size += other.file->size();
                images.push_back(functions_of(core, blob, other, archs).at(0));
            }
            const auto mark = std::find_if(images.begin(), images.end(), is_whole_mark);
            const void* const image = mark == images.end() ? join_images(images) : *mark;
            functions.assign(functions.size(), const_cast<void*>(image));
        }
    } catch (...) {
        // The next call looks again. By then, another file may be in the place of this one.
        const std::lock_guard<std::mutex> guard(core.states.mutex);
        BlobState& state = core.states.all[blob];
        if (state.entry.get() == &entry) state.entry.reset();
        throw;
    }
    bool is_first = false;
    {
        const std::lock_guard<std::mutex> guard(core.states.mutex);
        BlobState& state = core.states.all[blob];
        is_first = !state.is_loaded;
        if (is_first) {
            state.functions = functions;
            state.archs = archs;
            state.lazy = read_slots(at);
            state.is_loaded = true;
        }
        // While a profile is recorded, the first call of each blob must pass through here.
        if (!core.recorder.is_recording()) store_slots(at, state.functions);
    }
    if (!is_first) return;
    core.store.events.prepare();
    event.seconds = now_seconds() - event.start;
    if (is_said(Level::debug))
        log_message(Level::debug, "loaded " + subject.words, {LAZYCK_EVENT_LOAD, subject, event.seconds, "loaded"});
    core.store.events.tell(event, core.store.history(at.manifest));
}

}  // namespace lazyck::rt
