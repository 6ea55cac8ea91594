#include "library/library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <link.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <thread>
#include <unordered_set>
#include <utility>

#include "base/failure.h"
#include "base/load_error.h"
#include "base/machine.h"
#include "bundle/arch.h"
#include "bundle/own_file.h"
#include "cache/places.h"
#include "lazyck_abi.h"
#include "library/device_images.h"
#include "platform/caller.h"
#include "platform/capture.h"
#include "platform/environment.h"
#include "platform/floating_point.h"
#include "platform/global_locks.h"
#include "platform/lock.h"
#include "platform/messages.h"
#include "platform/parallel.h"
#include "platform/process.h"
#include "platform/ranges.h"
#include "platform/threads.h"
#include "platform/unwinder.h"
#include "record/neighbours.h"

// _lazyck/postbuild/link/stubs.py makes the definitions.
extern "C" {
extern __attribute__((visibility("hidden"))) std::atomic<void*> lazyck_slots[];
extern __attribute__((visibility("hidden"))) const std::uint32_t lazyck_slot_count;
extern __attribute__((visibility("hidden"))) const unsigned char lazyck_manifest[];
extern __attribute__((visibility("hidden"))) const unsigned char lazyck_manifest_end[];
// api.cpp defines this one.
extern __attribute__((visibility("hidden"))) int lazyck_own_get_stats(lazyck_stats*);
}

namespace lazyck::rt {

namespace {

std::atomic<Library*> g_library{nullptr};

// FlashAttention's forward file takes as long as five to six of its kernels one by one, llama.cpp's
// mmq as five.
constexpr unsigned k_kernels_for_a_source = 5;
constexpr std::size_t k_most_called_together = 4;

// A called blob's need for a compile slot. While it exists, other blobs may wait until this one has
// got a slot.
class SlotNeed {
 public:
    SlotNeed(Store& store, std::string blob) : m_store(store), m_blob(std::move(blob)) {}
    SlotNeed(const SlotNeed&) = delete;
    SlotNeed& operator=(const SlotNeed&) = delete;
    ~SlotNeed() { m_store.needs_no_slot(m_blob); }

 private:
    Store& m_store;
    const std::string m_blob;
};

// Returns where the loader put the file. Another thread may have loaded it. The loader's lock,
// which the thread sanitizer does not see, orders this read.
__attribute__((noinline, no_sanitize("thread"))) std::uintptr_t load_base(void* handle) {
    const link_map* map = nullptr;
    return dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0 ? map->l_addr : 0;
}

// Returns whether the object that is loaded at `base` has a symbol where the checked file has
// `symbol`.
bool has_symbol_at(std::uintptr_t base, const DynamicSymbol& symbol) {
    Dl_info info;
    void* row = nullptr;
    if (dladdr1(reinterpret_cast<void*>(base + symbol.value), &info, &row, RTLD_DL_SYMENT) == 0) return false;
    return row != nullptr && static_cast<const ElfW(Sym)*>(row)->st_value == symbol.value;
}

// Returns the function that a symbol of a loaded blob stands for. The resolver of an IFUNC is
// called as the loader calls it.
void* function_at(std::uintptr_t base, const DynamicSymbol& symbol) {
    void* const code = reinterpret_cast<void*>(base + symbol.value);
    if (!symbol.is_ifunc) return code;
#if defined(__aarch64__)
    const unsigned long capabilities[] = {3 * sizeof(unsigned long), getauxval(AT_HWCAP), getauxval(AT_HWCAP2)};
    constexpr unsigned long has_argument = 1UL << 62;
    return reinterpret_cast<void* (*)(unsigned long, const unsigned long*)>(code)(capabilities[1] | has_argument,
                                                                                  capabilities);
#else
    return reinterpret_cast<void* (*)()>(code)();
#endif
}

// Throws CompileError if the blob would call back into another library. Blobs name this library by
// its soname, so their calls would reach another library of that soname that was loaded before.
// Every lazy library has lazyck_get_stats, unless a version script hides it.
void check_calls_back(void* blob, const ManifestView& manifest, const std::string& own, const char* name) {
    void* const found = dlsym(blob, "lazyck_get_stats");
    Dl_info there, here;
    // This is the usual case. It avoids dladdr, which goes through the library's symbols one by
    // one.
    if (found == nullptr || found == reinterpret_cast<void*>(&lazyck_own_get_stats)) return;
    if (dladdr(found, &there) == 0) return;
    if (dladdr(static_cast<const void*>(lazyck_manifest), &here) == 0 || there.dli_fbase == here.dli_fbase) return;
    fail("lazyck: blob '" + visible(name) + "' of '" + own + "' would call back into '" + there.dli_fname +
             "', which was loaded before and has the same soname, '" + manifest.soname() +
             "'; link one of them with another soname (-Wl,-soname,NAME)",
         {name, "", ""});
}

// Throws CompileError if a graph is being recorded. A first call would spoil it, and the program
// would be told so much later.
void check_no_capture(const ManifestView& manifest, const BlobRow& blob, const std::string& own) {
    const std::string runtime = capturing_runtime(manifest.recipe_toolchain(blob.recipe));
    if (runtime.empty()) return;
    fail("lazyck: blob '" + visible(blob.name) + "' is called for the first time while a " + runtime +
             " stream is being captured, when it can be neither compiled nor loaded; call it once before the capture, "
             "or "
             "lazyck_prefetch(\"" +
             blob.name + "\")\n  to compile it ahead of time: " +
             shell_join({"lazyck", "prebuild", "build", "--manifest", own, blob.name}),
         {blob.name, "", ""});
}

ManifestView embedded_manifest() {
    const auto size = static_cast<std::size_t>(lazyck_manifest_end - lazyck_manifest);
    return size == 0 ? ManifestView() : ManifestView(lazyck_manifest, size, "embedded manifest");
}

}  // namespace

Library::Library(const Config& config, std::string path)
    : m_path(std::move(path)),
      m_embedded(embedded_manifest()),
      m_store(config, {m_path, bundle_roots(config.root, m_embedded.root(), m_path)}, true),
      m_changed(std::make_unique<std::condition_variable>()) {
    if (!config.manifest.empty()) {
        if (const int error = m_fallback_file.map(config.manifest, true)) {
            fail_system(LAZYCK_ENV_MANIFEST "=" + config.manifest, error);
        }
        m_fallback =
            ManifestView(m_fallback_file.data(), m_fallback_file.size(), LAZYCK_ENV_MANIFEST "=" + config.manifest);
    }
    for (const ManifestView* manifest : {&m_embedded, &m_fallback}) {
        if (manifest->blob_count() == 0 || manifest->machine() == own_machine()) continue;
        fail("lazyck: " + m_path + ": its manifest is for " + machine_name(manifest->machine()) +
             ", but this process runs on " + machine_name(own_machine()));
    }
    if (m_embedded.symbol_count() != lazyck_slot_count && m_fallback.symbol_count() != lazyck_slot_count) {
        fail("lazyck: " + m_path + ": neither its manifest nor " LAZYCK_ENV_MANIFEST " describes its " +
             std::to_string(lazyck_slot_count) + " slots");
    }
}

Library& Library::get() {
    Library* library = g_library.load(std::memory_order_acquire);
    if (library != nullptr) return *library;
    // No lock is held meanwhile, because the dynamic loader is asked. Whoever comes first wins. The
    // library is never destroyed, since other threads may call to the very end.
    std::unique_ptr<Library> mine(new Library(read_config(), own_file()));
    if (g_library.compare_exchange_strong(library, mine.get(), std::memory_order_acq_rel)) {
        library = mine.release();
        pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
        std::atexit(at_exit);  // or at its dlclose
        const Jit jit = library->m_store.config().jit;
        if ((jit == Jit::warn || jit == Jit::error) && is_process_ready()) set_ready(true);
        library->begin();
        warn_of_environment();
    }
    return *library;
}

// Does what the environment asks for, at the first use.
void Library::begin() {
    const Config& config = m_store.config();
    if (!config.record.empty()) record(config.record);
    const auto attempt = [](const char* variable, const auto& action) {
        try {
            action();
        } catch (const CompileError& e) {
            say(Level::warn, std::string(e.what()).substr(8) + " (" + variable + "); blobs are made ready when called");
        }
    };
    if (!config.prefetch.empty())
        attempt(LAZYCK_ENV_PREFETCH, [&] { m_prefetch = prefetch_later(config.prefetch, 0); });
    if (!config.speculate.empty()) attempt(LAZYCK_ENV_SPECULATE, [&] { speculate(config.speculate); });
}

void Library::at_exit() {
    Library* const library = g_library.load();
    if (library == nullptr) return;
    const DefaultFloatingPoint ours;
    library->finish_record();
    library->m_store.close();
}

void Library::before_fork() {
    g_library.load()->m_mutex.lock();
    g_library.load()->m_store.before_fork();
    global_locks_before_fork();
}

void Library::after_fork_in_parent() {
    global_locks_after_fork();
    g_library.load()->m_store.after_fork_in_parent();
    g_library.load()->m_mutex.unlock();
}

// The child has none of the threads that obtained entries (see owner_pid), or that waited for them.
void Library::after_fork_in_child() {
    close_locks_in_child();
    global_locks_after_fork();
    forget_environment_in_child();
    Library& library = *g_library.load();
    library.m_store.after_fork_in_child();
    for (auto& each : library.m_states) each.second.calls = 0;
    static_cast<void>(library.m_prefetch.release());  // its threads are gone too
    library.m_expected.clear();
    library.m_is_expecting = false;
    library.m_is_sampled = false;
    library.m_in_flight = 0;
    ++library.m_generation;
    static_cast<void>(library.m_changed.release());  // its waiters are gone: destroying it would wait for them
    library.m_changed = std::make_unique<std::condition_variable>();
    library.m_mutex.unlock();
}

Library::Row Library::row(BlobId blob) const {
    const auto own = static_cast<std::uint32_t>(blob), part = static_cast<std::uint32_t>(blob >> 32);
    const std::uint32_t embedded = m_embedded.blob_count();
    const Row at = own < embedded ? Row{m_embedded, own} : Row{m_fallback, own - embedded};
    if (part == 0) return at;
    const auto make = [&] { return at.manifest.parts(at.index, {}); };
    Parts& all = parts(own);
    // Whoever has the number of a part with device code has made all rows already.
    return {part - 1 == ManifestView::k_host_unit ? all.plain.get(make) : all.full.get(make), part - 1};
}

Library::Parts& Library::parts(BlobId blob) const {
    return m_parts.get([&] {
        return std::make_unique<Parts[]>(m_embedded.blob_count() + m_fallback.blob_count());
    })[static_cast<std::uint32_t>(blob)];
}

Library::BlobId Library::blob_of_slot(std::uint32_t slot) const {
    if (m_embedded.symbol_count() == lazyck_slot_count) return m_embedded.symbol_blob(slot);
    return m_embedded.blob_count() + m_fallback.symbol_blob(slot);
}

void* Library::resolve(std::uint32_t slot, const void* caller) {
    const BlobId blob = blob_of_slot(slot);
    expect_neighbours(blob);  // while this one is compiled
    make_ready_for_call({blob, nullptr, true, "", "", {slot, caller}});
    const Row at = row(blob);
    return function_for_call(blob, slot - at.manifest.blob(at.index).first_symbol);
}

void* Library::first_function(BlobId blob) {
    expect_neighbours(blob);
    make_ready_for_call({blob, nullptr, true, "", ""});
    return function_for_call(blob, 0);
}

const Library::HostUnit& Library::host_unit(const Handle& handle) {
    if (handle.table[0] != '\0') return host_unit_by(blob_of_name(handle.source), handle.table);
    const auto& all = m_host_units.get([this] {
        std::unordered_map<std::string, HostUnit> units;
        const ManifestView& manifest = row(first_blob()).manifest;
        for (std::uint32_t i = 0; i < manifest.blob_count(); ++i) {
            const BlobRow blob = manifest.blob(i);
            if (blob.kernel[0] == '\0') continue;
            HostUnit& unit = units[host_unit_of(blob)];
            if (kernel_of(blob)[0] == '*')
                unit.whole = first_blob() + i;
            else
                unit.kernels.emplace(manifest.symbol_name(blob.first_symbol), first_blob() + i);
        }
        return units;
    });
    const auto found = all.find(handle.source);
    if (found == all.end()) fail("lazyck: " + m_path + ": its manifest does not have the kernels that it registers");
    return found->second;
}

// Returns the host unit of a blob, by the table that came with the loaded host unit.
const Library::HostUnit& Library::host_unit_by(BlobId blob, const char* table) {
    return parts(blob).unit.get([&] {
        const Row at = row(blob);
        const ManifestView& all =
            parts(blob).full.get([&] { return at.manifest.parts(at.index, lines_of_table(table)); });
        HostUnit unit;
        unit.whole = part_of(blob, ManifestView::k_whole_device);
        for (std::uint32_t i = ManifestView::k_first_kernel; i < all.blob_count(); ++i)
            unit.kernels.emplace(all.symbols_of(all.blob(i)).at(0), part_of(blob, i));
        return unit;
    });
}

Library::BlobId Library::blob_of_name(const std::string& name) {
    for (BlobId i = 0; i < blob_count(); ++i) {
        if (name == blob_name(i)) return first_blob() + i;
    }
    fail("lazyck: " + m_path + ": its manifest does not have the blob '" + visible(name) +
         "', whose kernels it registers");
}

const void* Library::image_for(const Handle& handle, bool& is_whole) {
    try {
        return image_of(host_unit(handle), handle, is_whole);
    } catch (const CompileError& e) {
        const std::string what = handle.is_kernel ? "kernel " : "variable ";
        const std::string used = handle.symbol.empty() ? "" : "\n  used: " + what + visible(readable(handle.symbol));
        throw CompileError((e.what() + used).c_str(), e.blob(), e.log(), e.command());
    }
}

// A kernel by itself costs most of what the first one of a whole source does: its headers. Whoever
// has used several kernels may use all of them. So the whole source is compiled in the background
// once the kernels have cost about as much. A program that stops there has paid at most twice, like
// someone who rents until the rent has reached the price, and then buys.
void Library::expect_whole_source(BlobId kernel, BlobId whole, std::size_t kernels) {
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        const BlobState& state = m_states[kernel];
        if (!state.entry || state.entry->origin != "compiled" || kernels < 2 * k_kernels_for_a_source) return;
        if (++m_compiled_kernels[whole] != k_kernels_for_a_source) return;
    }
    stay_loaded();
    make_ready_later(wanted_here({whole}));
}

const void* Library::image_of(const HostUnit& unit, const Handle& handle, bool& is_whole) {
    const auto kernel = handle.is_kernel ? unit.kernels.find(handle.symbol) : unit.kernels.end();
    const void* image = nullptr;
    if (kernel != unit.kernels.end()) {
        // If the whole source is ready already, it is better than a kernel that must be compiled.
        const Wanted one = {kernel->second, nullptr, true, "", ""}, all = {unit.whole, nullptr, true, "", ""};
        if (is_loaded(one.blob) || is_at_hand(one) || !is_at_hand(all)) {
            image = first_function(one.blob);
            expect_whole_source(one.blob, all.blob, unit.kernels.size());
        }
    }
    is_whole = image == nullptr || is_whole_mark(image);
    return is_whole ? first_function(unit.whole) : image;
}

// Returns the function for a call. The slot is not read, because during a record slots are made
// lazy again from time to time.
void* Library::function_for_call(BlobId blob, std::uint32_t number) {
    const Row at = row(blob);
    std::string record;
    ProfileRow first;
    void* function = nullptr;
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        BlobState& state = m_states[blob];
        store_slots(at, state.functions);
        function = state.functions.at(number);
        if (m_record.empty()) return function;
        ++state.calls;
        if (state.order != 0) return function;
        state.order = ++m_order;
        first = profile_row(blob, state);
        record = m_record;
    }
    append_profile(record, {first});
    return function;
}

void Library::store_slots(const Row& at, const std::vector<void*>& functions) {
    if (!at.manifest.has_slots()) return;
    const BlobRow description = at.manifest.blob(at.index);
    for (std::uint32_t i = 0; i < description.symbol_count; ++i) {
        lazyck_slots[description.first_symbol + i].store(functions[i], std::memory_order_release);
    }
}

ProfileRow Library::profile_row(BlobId blob, const BlobState& state) {
    const Row at = row(blob);
    ProfileRow row;
    row.blob = at.manifest.blob(at.index).name;
    row.library = at.manifest.library();
    row.archs = state.archs;
    row.order = state.order;
    row.calls = state.calls;
    if (!at.manifest.has_slots()) row.kernel = kernel_of(at.manifest.blob(at.index));
    if (state.entry) {
        row.seconds = state.entry->seconds;
        row.peak_kib = state.entry->peak_kib;
    }
    return row;
}

void Library::record(const std::string& path) {
    finish_record();
    const std::string record = path.empty() ? "" : absolute(path);
    bool is_sampled;
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        m_record = record;
        m_order = 0;
        for (auto& each : m_states) each.second.order = 0;
        if (m_record.empty()) return;
        sample();
        is_sampled = std::exchange(m_is_sampled, true);
    }
    if (is_sampled) return;
    // Once a second, the slots of the blobs that were called are made lazy again. A blob's next
    // call is then seen, at the cost of one slow call each second. All other calls cost nothing.
    stay_loaded();
    const auto work = [] {
        while (true) {
            std::this_thread::sleep_for(std::chrono::seconds(1));
            at_sample();
        }
    };
    if (start_thread(work)) return;
    say(Level::warn,
        "cannot start a thread: the record '" + record + "' says which blobs are called, but not how often");
    const std::lock_guard<std::mutex> guard(m_mutex);
    m_is_sampled = false;
}

void Library::at_sample() {
    Library& library = *g_library.load();
    const std::lock_guard<std::mutex> guard(library.m_mutex);
    if (!library.m_record.empty()) library.sample();
}

// The caller must hold m_mutex.
void Library::sample() {
    for (const auto& each : m_states) {
        if (!each.second.is_loaded) continue;
        store_slots(row(each.first), each.second.lazy);
    }
}

void Library::finish_record() {
    std::vector<ProfileRow> rows;
    std::string path;
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        if (m_record.empty()) return;
        path = m_record;
        for (auto& each : m_states) {
            if (each.second.order != 0 && each.second.calls > 1) rows.push_back(profile_row(each.first, each.second));
            each.second.calls = 0;
        }
    }
    append_profile(path, rows);
}

// Keeps the library loaded, because threads of ours run its code for as long as the process lives.
void Library::stay_loaded() {
    Dl_info info;
    if (dladdr(static_cast<const void*>(lazyck_manifest), &info) == 0 || info.dli_fname == nullptr) return;
    dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

std::uint32_t Library::first_blob() const {
    return m_embedded.symbol_count() == lazyck_slot_count ? 0 : m_embedded.blob_count();
}

std::uint32_t Library::blob_count() const {
    return first_blob() == 0 ? m_embedded.blob_count() : m_fallback.blob_count();
}

const char* Library::blob_name(BlobId blob) const {
    if (blob >= blob_count()) return nullptr;
    const Row at = row(first_blob() + blob);
    return at.manifest.blob(at.index).name;
}

bool Library::is_cached(const std::string& name) {
    for (BlobId i = 0; i < blob_count(); ++i) {
        if (name != blob_name(i)) continue;
        const Strings archs = archs_here(first_blob() + i);
        return is_loaded(first_blob() + i) || is_in_cache(first_blob() + i, archs, true);
    }
    fail("lazyck: " + m_path + " has no blob '" + visible(name) + "'");
}

std::unordered_map<std::string, Library::BlobId> Library::ids_by_name() const {
    std::unordered_map<std::string, BlobId> ids;
    for (BlobId i = 0; i < blob_count(); ++i) ids.emplace(blob_name(i), first_blob() + i);
    return ids;
}

// Returns what a blob is compiled for if this thread calls it.
Strings Library::archs_here(BlobId blob) {
    const Row at = row(blob);
    return archs_for(at.manifest, at.manifest.blob(at.index).recipe, m_store.config().archs, true);
}

// Returns what other threads shall make ready, for the device that this thread uses. Each thread
// chooses a device for itself, and lazyck's own threads choose none.
std::vector<Library::Wanted> Library::wanted_here(const std::vector<BlobId>& blobs) {
    std::vector<Wanted> all;
    std::map<std::pair<const ManifestView*, std::uint32_t>, std::shared_ptr<const Strings>> known;  // by recipe
    for (const BlobId blob : blobs) {
        const Row at = row(blob);
        const auto place = known.try_emplace({&at.manifest, at.manifest.blob(at.index).recipe});
        if (place.second) {
            try {
                place.first->second = std::make_shared<const Strings>(archs_here(blob));
            } catch (const CompileError&) {
                // No arch can be determined, as whoever makes the blob ready will find out, too.
            }
        }
        all.push_back({blob, place.first->second, false, "", ""});
    }
    return all;
}

void Library::speculate(const std::string& path) {
    std::unordered_map<BlobId, std::vector<BlobId>> neighbours;
    if (!path.empty()) {
        const std::unordered_map<std::string, BlobId> ids = ids_by_name();
        for (const auto& each : read_neighbours(path, row(first_blob()).manifest.library())) {
            const auto blob = ids.find(each.first);
            if (blob == ids.end()) continue;
            for (const std::string& name : each.second) {
                const auto other = ids.find(name);
                if (other != ids.end()) neighbours[blob->second].push_back(other->second);
            }
        }
        stay_loaded();
    }
    const std::lock_guard<std::mutex> guard(m_mutex);
    m_neighbours = std::move(neighbours);
    m_expected.clear();
}

// Returns the blobs that the calling function calls besides: instances of other templates, each the
// only instance of its template there. Several instances of one template are usually alternatives,
// of which only one will be called.
std::vector<Library::BlobId> Library::siblings_of(const Call& call) {
    const bool is_embedded = m_embedded.symbol_count() == lazyck_slot_count;
    const ManifestView& manifest = is_embedded ? m_embedded : m_fallback;
    const auto slot_of = [&](std::string_view name) -> std::int64_t {
        const auto& slots = m_slots_by_name.get([&] {
            std::unordered_map<std::string_view, std::uint32_t> all;
            for (std::uint32_t i = 0; i < lazyck_slot_count; ++i) all.emplace(manifest.symbol_name(i), i);
            return all;
        });
        const auto found = slots.find(name);
        return found == slots.end() ? -1 : static_cast<std::int64_t>(found->second);
    };
    std::map<std::string_view, std::vector<std::uint32_t>> by_template;
    for (const std::uint32_t slot : slots_called_beside(call.from, k_most_called_together, slot_of))
        by_template[template_of(manifest.symbol_name(slot))].push_back(slot);
    std::vector<BlobId> siblings;
    const std::string_view own = template_of(manifest.symbol_name(call.slot));
    const auto is_only = [&](std::string_view name) {
        const auto found = by_template.find(name);
        return !name.empty() && found != by_template.end() && found->second.size() == 1;
    };
    if (!is_only(own) || by_template[own][0] != call.slot) return siblings;
    for (const auto& each : by_template) {
        if (each.first != own && is_only(each.first)) siblings.push_back(blob_of_slot(each.second[0]));
    }
    return siblings;
}

// Begins to compile the other blobs that the calling function calls, while the blob of this call is
// compiled.
void Library::expect_siblings(const Call& call) {
    if (call.from == nullptr || m_store.config().jobs < 2 || m_store.jit().is_forbidden()) return;
    for (const Wanted& sibling : wanted_here(siblings_of(call))) {
        {
            const std::lock_guard<std::mutex> guard(m_mutex);
            m_siblings.insert(blob_of_slot(call.slot));
            if (m_states[sibling.blob].is_loaded || !m_siblings.insert(sibling.blob).second) continue;
        }
        stay_loaded();
        const auto name_of = [&](BlobId blob) { return std::string(blob_name(blob - first_blob())); };
        m_store.announce(name_of(sibling.blob), name_of(blob_of_slot(call.slot)));
        const bool has_begun = start_thread([this, sibling, activity = std::make_shared<Activity>(*this)] {
            try {
                make_ready(sibling);
            } catch (const std::exception&) {
                // If a call needs this blob, that call gets the error.
            }
            m_store.withdraw();
        });
        if (!has_begun) m_store.withdraw();
    }
}

// Makes ready, at a call, what is likely to be called next.
void Library::expect_neighbours(BlobId blob) {
    std::vector<BlobId> neighbours;
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        const auto found = m_neighbours.find(blob);
        if (found == m_neighbours.end()) return;
        neighbours = std::move(found->second);
        m_neighbours.erase(found);
    }
    make_ready_later(wanted_here(neighbours));
}

// Makes blobs ready in the background, on one thread.
void Library::make_ready_later(const std::vector<Wanted>& wanted) {
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        m_expected.insert(m_expected.end(), wanted.begin(), wanted.end());
        if (m_is_expecting || m_expected.empty()) return;
        m_is_expecting = true;
    }
    if (start_thread([this, activity = std::make_shared<Activity>(*this)] { make_expected_ready(); })) return;
    const std::lock_guard<std::mutex> guard(m_mutex);
    m_is_expecting = false;
    m_expected.clear();  // without a thread, nothing is made ready
}

// Makes expected blobs ready, one at a time. A guess may be wrong, so a blob is compiled only where
// another compile slot is left to the calls themselves.
void Library::make_expected_ready() {
    while (true) {
        Wanted next;
        {
            const std::lock_guard<std::mutex> guard(m_mutex);
            m_is_expecting = !m_expected.empty();
            if (!m_is_expecting) return;
            next = m_expected.front();
            m_expected.pop_front();
        }
        try {
            if (is_at_hand(next) || (m_store.config().jobs > 1 && !m_store.jit().is_forbidden())) make_ready(next);
        } catch (const std::exception&) {
            // If a call needs this blob, that call gets the error.
        }
    }
}

std::unique_ptr<Prefetch> Library::prefetch_later(const std::string& profile, unsigned workers) {
    return prefetch_rows(read_profile(profile, row(first_blob()).manifest.library()), workers);
}

std::unique_ptr<Prefetch> Library::prefetch_later(const Strings& names, unsigned workers) {
    const std::unordered_map<std::string, BlobId> ids = ids_by_name();
    std::vector<ProfileRow> rows(names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (!wanted_by_name(names[i], ids)) fail("lazyck: " + m_path + " has no blob '" + visible(names[i]) + "'");
        rows[i].blob = names[i];
    }
    return prefetch_rows(rows, workers);
}

std::unique_ptr<Prefetch> Library::prefetch_rows(const std::vector<ProfileRow>& rows, unsigned workers) {
    const std::unordered_map<std::string, BlobId> ids = ids_by_name();
    std::vector<Wanted> chosen;
    std::vector<BlobId> blobs;
    std::vector<double> seconds;
    std::string missing;
    std::size_t missing_count = 0;
    for (const ProfileRow& row : rows) {
        auto found = wanted_by_name(row.blob, ids);
        if (!found) {
            if (missing_count++ == 0) missing = row.blob;
            continue;
        }
        if (!found->part.empty()) found->line = row.kernel;
        chosen.push_back(*found);
        blobs.push_back(found->blob);
        seconds.push_back(row.seconds);
    }
    // A blob whose kernels are named is itself made ready only as far as these kernels need it.
    std::unordered_set<BlobId> by_kernel;
    for (const Wanted& each : chosen) {
        if (!each.part.empty()) by_kernel.insert(each.blob);
    }
    for (const BlobId blob : by_kernel) {
        const auto is_own = [&](const Wanted& each) { return each.blob == blob && each.part.empty(); };
        if (std::any_of(chosen.begin(), chosen.end(), is_own)) continue;
        chosen.push_back({blob, nullptr, true, "", ""});
        blobs.push_back(blob);
        seconds.push_back(0);
    }
    const std::vector<Wanted> here = wanted_here(blobs);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
        chosen[i].archs = here[i].archs;
        chosen[i].is_called = by_kernel.count(chosen[i].blob) != 0;
    }
    if (missing_count > 0) {
        say(Level::warn, std::to_string(missing_count) + " of " + std::to_string(rows.size()) +
                             " blobs to prefetch are not in '" + m_path + "' (such as '" + visible(missing) +
                             "'): recorded with another build of it?");
    }
    stay_loaded();
    const auto wanted = std::make_shared<const std::vector<Wanted>>(std::move(chosen));
    const auto expect = [this, wanted](std::size_t i) {
        const Wanted& each = (*wanted)[i];
        const Row at = row(each.blob);
        try {
            double seconds = 0;
            const Strings archs = each.archs ? *each.archs : archs_here(each.blob);
            for (const Strings& one : archs_of_entries(at.manifest.blob(at.index), archs))
                seconds += m_store.expected_cost(at.manifest, at.index, one).blob.seconds;
            return seconds;
        } catch (const std::exception&) {
            return 0.0;  // the compile will report what is wrong
        }
    };
    const auto work = [this, wanted, activity = std::make_shared<Activity>(*this)](std::size_t i, bool may_compile) {
        const Wanted& each = (*wanted)[i];
        if (!may_compile && !is_at_hand(each)) return false;
        make_ready(each);
        if (each.part.empty()) load_parts(each.blob);
        return true;
    };
    return std::make_unique<Prefetch>(seconds, workers == 0 ? m_store.config().jobs : workers, work, expect);
}

// Returns what a profile names: a blob, or a part of one, whose name begins with the blob's.
std::optional<Library::Wanted> Library::wanted_by_name(const std::string& name,
                                                       const std::unordered_map<std::string, BlobId>& ids) {
    const auto found = ids.find(name);
    if (found != ids.end()) return Wanted{found->second, nullptr, false, "", ""};
    const std::size_t dot = name.rfind('.');
    const auto blob = dot == std::string::npos ? ids.end() : ids.find(name.substr(0, dot));
    if (blob == ids.end()) return std::nullopt;
    const Row at = row(blob->second);
    if (!at.manifest.has_parts(at.index)) return std::nullopt;
    return Wanted{blob->second, nullptr, true, name, ""};
}

// Returns whether it can be made ready without a compiler, and without waiting for one.
bool Library::is_at_hand(const Wanted& wanted) {
    if (!wanted.part.empty()) return false;
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        const BlobState& state = m_states[wanted.blob];
        if (state.entry && (wanted.is_called || !state.entry->is_host_unit)) return true;
        if (state.is_busy) return false;
    }
    return is_in_cache(wanted.blob, wanted.archs ? *wanted.archs : archs_here(wanted.blob), wanted.is_called);
}

// Returns the host unit of a loaded blob, or null if all of the blob is loaded, or if it has no
// device code.
const Library::HostUnit* Library::loaded_host_unit(BlobId blob) {
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        const BlobState& state = m_states[blob];
        if (!state.entry || !state.entry->is_host_unit) return nullptr;
    }
    const Row at = row(blob);
    const char* const table = table_of(at.manifest.blob(at.index).name);
    return table[0] == '\0' ? nullptr : &host_unit_by(blob, table);
}

// Makes those parts ready that waited for their host unit, which is loaded now.
void Library::load_parts(BlobId blob) {
    std::vector<Wanted> waiting;
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        const auto found = m_parts_to_load.find(blob);
        if (found == m_parts_to_load.end()) return;
        waiting = std::move(found->second);
        m_parts_to_load.erase(found);
    }
    for (const Wanted& each : waiting) make_part_ready(each);
}

// Makes a kernel that a profile names ready. The blob's host unit tells which kernels there are. A
// kernel that it does not have does not belong to this build, and is ignored.
void Library::make_part_ready(const Wanted& wanted) {
    const Row at = row(wanted.blob);
    // The kernel is compiled at the same time as its host unit, which another thread makes. That
    // thread then loads the kernel.
    if (!wanted.line.empty() && !is_loaded(wanted.blob)) {
        const ManifestView kernel = at.manifest.kernel(at.index, wanted.line);
        if (m_store.goes_by_kernel(at.manifest, at.index)) {
            const Strings archs = wanted.archs ? *wanted.archs : archs_here(wanted.blob);
            for (const Strings& each : archs_of_entries(kernel.blob(0), archs)) m_store.obtain(kernel, 0, each);
        }
        const std::lock_guard<std::mutex> guard(m_mutex);
        if (!m_states[wanted.blob].is_loaded) {
            m_parts_to_load[wanted.blob].push_back(wanted);
            return;
        }
    }
    make_ready({wanted.blob, wanted.archs, true, "", ""});
    const HostUnit* const unit = loaded_host_unit(wanted.blob);
    if (unit == nullptr) return;
    for (const auto& kernel : unit->kernels) {
        const Row part = row(kernel.second);
        if (part.manifest.blob(part.index).name == wanted.part) make_ready({kernel.second, wanted.archs, true, "", ""});
    }
}

bool Library::is_loaded(BlobId blob) {
    const std::lock_guard<std::mutex> guard(m_mutex);
    return m_states[blob].is_loaded;
}

void Library::make_ready(const Wanted& wanted) {
    if (!wanted.part.empty()) {
        make_part_ready(wanted);
        return;
    }
    if (is_loaded(wanted.blob)) {
        // The host unit is loaded, and all of the blob is wanted, so the code that it may launch is
        // made ready, too.
        if (const HostUnit* const unit = wanted.is_called ? nullptr : loaded_host_unit(wanted.blob))
            make_ready({unit->whole, wanted.archs, true, "", ""});
        return;
    }
    const Row at = row(wanted.blob);
    check_no_capture(at.manifest, at.manifest.blob(at.index), m_path);
    const Strings archs = wanted.archs ? *wanted.archs : archs_here(wanted.blob);
    const SlotNeed need(m_store, wanted.call.from == nullptr ? "" : at.manifest.blob(at.index).name);
    const std::shared_ptr<const Entry> entry = obtain(wanted.blob, archs, wanted.is_called, wanted.call);
    load(wanted.blob, *entry, archs.empty() ? "any" : join(archs, "+"));
}

// Returns the entry. If a cache has it, every thread takes it from there. If it must be compiled,
// one thread at a time does so. The threads that waited share the result, even a failure, since
// they asked for the same attempt. The next call makes a new attempt, unless the compiler would
// fail in the same way again.
//
// While a thread compiles, it holds what others wait for: the blob and, within m_store, locks and
// slots of the host. A waiting thread may hold the dynamic loader's lock (an initializer calls a
// blob) or a lock of the program. So the compiling thread calls neither the loader, nor the C
// library's name services or locale, nor the program's code.
std::shared_ptr<const Entry> Library::obtain(BlobId blob, const Strings& archs, bool may_go_by_kernel,
                                             const Call& call) {
    const Row at = row(blob);
    if (const auto entry = found_entry(blob, archs, may_go_by_kernel)) return entry;
    expect_siblings(call);
    const char* const name = at.manifest.blob(at.index).name;
    m_store.events().prepare();
    if (m_store.config().has_remote && adopts_orphans()) stay_loaded();  // for the thread that waits for them
    const Range range(std::string("lazyck compile ") + name);
    {
        std::unique_lock<std::mutex> lock(m_mutex);
        BlobState& state = m_states[blob];  // references into an unordered_map stay valid
        const std::uint64_t seen = state.attempts;
        while (state.is_busy && state.owner_pid == getpid()) {
            if (state.owner == std::this_thread::get_id()) {
                fail("lazyck: blob '" + visible(name) + "' was called while this thread compiles it");
            }
            m_changed->wait(lock);
        }
        if (state.entry) return state.entry;
        const bool is_answered = state.attempts != seen || (state.is_failure_final && state.failed_archs == archs);
        if (is_answered && state.failure) throw CompileError(*state.failure);
        state.is_busy = true;
        state.owner_pid = getpid();
        state.owner = std::this_thread::get_id();
    }
    std::shared_ptr<const Entry> entry;
    std::shared_ptr<const CompileError> failure;
    bool is_final = false;
    const auto settle = [&] {
        {
            const std::lock_guard<std::mutex> guard(m_mutex);
            BlobState& state = m_states[blob];
            state.is_busy = false;
            ++state.attempts;
            state.entry = entry;
            state.failure = failure;
            state.is_failure_final = is_final;
            state.failed_archs = archs;
        }
        m_changed->notify_all();
    };
    try {
        entry = std::make_shared<const Entry>(make(blob, archs, may_go_by_kernel));
    } catch (const CompileError& e) {
        failure = std::make_shared<const CompileError>(e);
        is_final = dynamic_cast<const PermanentFailure*>(&e) != nullptr;
    } catch (...) {
        settle();
        throw;
    }
    settle();
    if (failure) throw CompileError(*failure);  // as the public type, whatever kind it was
    return entry;
}

// Returns what this process or a cache has, or null if it must be compiled, or another thread is
// getting it.
std::shared_ptr<const Entry> Library::found_entry(BlobId blob, const Strings& archs, bool may_go_by_kernel) {
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        const BlobState& state = m_states[blob];
        if (state.entry) return state.entry;
        if (state.is_failure_final && state.failed_archs == archs && state.failure) throw CompileError(*state.failure);
        if (state.is_busy && state.owner_pid == getpid()) return nullptr;
    }
    std::optional<Entry> found = find(blob, archs, may_go_by_kernel);
    if (!found) return nullptr;
    const auto entry = std::make_shared<const Entry>(std::move(*found));
    const std::lock_guard<std::mutex> guard(m_mutex);
    BlobState& state = m_states[blob];
    if (!state.entry) state.entry = entry;
    return state.entry;
}

bool Library::is_in_cache(BlobId blob, const Strings& archs, bool may_go_by_kernel) {
    const auto is_there = [&](const Row& at) {
        const std::vector<Strings> entries = archs_of_entries(at.manifest.blob(at.index), archs);
        return std::all_of(entries.begin(), entries.end(), [&](const Strings& each) {
            std::string path;
            return m_store.is_cached(at.manifest, at.index, each, path);
        });
    };
    const Row at = row(blob);
    if (is_there(at)) return true;
    return may_go_by_kernel && at.manifest.has_parts(at.index) &&
           is_there(row(part_of(blob, ManifestView::k_host_unit)));
}

// Returns the entries that `get` gets for `archs` as one, or nothing if one is missing. Several are
// made at the same time.
std::optional<Entry> Library::each_entry(const Row& at, const Strings& archs,
                                         const std::function<std::optional<Entry>(const Strings&)>& get) {
    const std::vector<Strings> wanted = archs_of_entries(at.manifest.blob(at.index), archs);
    if (wanted.size() == 1) return get(wanted.front());
    std::vector<std::optional<Entry>> entries(wanted.size());
    for_each_in_parallel(wanted.size(), m_store.config().jobs, [&](std::size_t i) { entries[i] = get(wanted[i]); });
    for (const auto& each : entries) {
        if (!each) return std::nullopt;
    }
    Entry all = std::move(*entries.front());
    for (std::size_t i = 1; i < entries.size(); ++i) {
        Entry& other = *entries[i];
        if (other.origin == "compiled") all.origin = other.origin;
        all.seconds += other.seconds;
        all.peak_kib = std::max(all.peak_kib, other.peak_kib);
        all.others.push_back(std::move(other));
    }
    return all;
}

// Returns a blob's entry in a cache: that of all of the blob, or else that of its host unit.
std::optional<Entry> Library::find(BlobId blob, const Strings& archs, bool may_go_by_kernel) {
    const Row at = row(blob);
    const auto find_one = [&](const Strings& each) { return m_store.find(at.manifest, at.index, each); };
    std::optional<Entry> found = each_entry(at, archs, find_one);
    if (found || !may_go_by_kernel || !at.manifest.has_parts(at.index)) return found;
    const Row part = row(part_of(blob, ManifestView::k_host_unit));
    found = m_store.find(part.manifest, part.index, archs);
    if (found) found->is_host_unit = true;
    return found;
}

// Makes a blob's entry, which no cache holds: that of all of the blob, or of its host unit. If the
// compiler's steps cannot be taken apart, or fail, the blob's own command is run, and reports the
// error.
Entry Library::make(BlobId blob, const Strings& archs, bool may_go_by_kernel) {
    const Row at = row(blob);
    const auto whole = [&] {
        // Of several entries, some may be cached.
        const auto make_one = [&](const Strings& each) -> std::optional<Entry> {
            return each.size() == archs.size() ? m_store.make(at.manifest, at.index, each)
                                               : m_store.obtain(at.manifest, at.index, each);
        };
        Entry entry = *each_entry(at, archs, make_one);
        if (entry.seconds > 0) expect_others_like(at, archs);
        return entry;
    };
    if (!may_go_by_kernel || !at.manifest.has_parts(at.index)) return whole();
    const Row part = row(part_of(blob, ManifestView::k_host_unit));
    const auto apart = [&](auto get) -> std::optional<Entry> {
        try {
            std::optional<Entry> entry = get(part.manifest, part.index, archs);
            if (entry) entry->is_host_unit = true;
            return entry;
        } catch (const CompileError& e) {
            say(Level::debug, std::string("not by kernel: ") + e.what());
            return std::nullopt;
        }
    };
    if (m_store.jit().is_forbidden()) {
        if (auto fetched = m_store.fetch(at.manifest, at.index, archs)) return std::move(*fetched);
        auto fetched = apart([&](auto&&... words) { return m_store.fetch(words...); });
        return fetched ? std::move(*fetched) : whole();
    }
    if (!m_store.goes_by_kernel(at.manifest, at.index)) return whole();
    // Whoever filled a remote cache usually compiled whole blobs.
    if (auto fetched = m_store.fetch(at.manifest, at.index, archs)) return std::move(*fetched);
    auto made = apart([&](auto&&... words) { return std::optional<Entry>(m_store.make(words...)); });
    if (made) {
        if (made->seconds > 0) expect_others_like(at, archs);
        return std::move(*made);
    }
    m_store.refuse_by_kernel(at.manifest, at.index);
    return whole();
}

// Precompiles the headers that other blobs include, too, in the background after a compile.
void Library::expect_others_like(const Row& at, const Strings& archs) {
    try {
        if (!m_store.should_make_preamble(at.manifest, at.index, archs)) return;
    } catch (const CompileError&) {
        return;  // a blob's own call will report what is wrong with it
    }
    stay_loaded();
    start_thread([this, at, archs, activity = std::make_shared<Activity>(*this)] {
        try {
            const std::string problem = m_store.make_preamble(at.manifest, at.index, archs);
            if (!problem.empty()) say(Level::debug, "no precompiled preamble: " + problem);
        } catch (const std::exception& e) {
            say(Level::debug, std::string("no precompiled preamble: ") + e.what());
        }
    });
}

// Drops the entry of a blob, so that the next call looks again. By then, another file may be in the
// place of the one that could not be loaded.
void Library::forget(BlobId blob, const Entry& entry) {
    const std::lock_guard<std::mutex> guard(m_mutex);
    BlobState& state = m_states[blob];
    if (state.entry.get() == &entry) state.entry.reset();
}

// Loads the file of a blob. A blob that has header state is loaded behind the library and behind
// other blobs with such state. All of them then use the state of the first one in the list, as when
// a linker takes the first of several definitions.
//
// The blob is put into the list before it is loaded, since no lock is held while the loader works.
// If another thread loads a blob behind it meanwhile, the loader loads both, and this call then
// finds the blob loaded.
void* Library::open_blob(const ManifestView& manifest, const BlobRow& blob, const Entry& entry, std::string& reason) {
    std::string listed;
    const auto before = [&](const std::string& name) {
        if (!entry.has_header_state) return Strings();
        const std::lock_guard<std::mutex> guard(m_mutex);
        auto place = std::find(m_state_holders.begin(), m_state_holders.end(), name);
        if (place == m_state_holders.end()) {
            place = m_state_holders.insert(place, name);
            listed = name;
        }
        Strings names(m_state_holders.begin(), place);
        const bool is_program = manifest.soname()[0] == '\0';
        if (!names.empty() && !is_program) names.insert(names.begin(), manifest.soname());
        return names;
    };
    CheckedFile::NamedCopy named_copy;
    if (std::string_view(manifest.recipe_toolchain(blob.recipe)) == LAZYCK_TOOLCHAIN_ROCM)
        named_copy = [this](int fd) { return m_store.named_copies().make(fd); };
    void* const handle = entry.file->load(m_mutex, before, named_copy, reason);
    if (handle == nullptr && !listed.empty()) {
        const std::lock_guard<std::mutex> guard(m_mutex);
        m_state_holders.erase(std::remove(m_state_holders.begin(), m_state_holders.end(), listed),
                              m_state_holders.end());
    }
    return handle;
}

// Loads the file of an entry, and returns the addresses of its functions. `archs` is for messages.
std::vector<void*> Library::functions_of(BlobId blob, const Entry& entry, const std::string& archs) {
    const Row at = row(blob);
    const BlobRow description = at.manifest.blob(at.index);
    const double start = now_seconds();
    std::string reason;
    void* const handle = open_blob(at.manifest, description, entry, reason);
    if (handle == nullptr) {
        const Subject subject = subject_of(at.manifest, description, archs);
        say(Level::error, "could not load " + subject.words, {"load", subject, now_seconds() - start, "failed"});
        fail("lazyck: cannot load blob '" + visible(description.name) + "': " + explain_load_error(reason, m_path),
             {description.name, "", ""});
    }
    introduce_unwinders(handle);
    check_calls_back(handle, at.manifest, m_path, description.name);
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

// Several threads may load the same entry. The loader maps it once, and all of them store the same
// addresses. Only device code for several archs is joined by each of them, and that of the first
// one is stored.
void Library::load(BlobId blob, const Entry& entry, const std::string& archs) {
    const Row at = row(blob);
    const BlobRow description = at.manifest.blob(at.index);
    Event event;
    event.kind = "load";
    event.library = at.manifest.library();
    event.blob = description.name;
    event.arch = archs;
    event.what = entry.origin;
    event.size = entry.file->size();
    event.start = now_seconds();
    std::vector<void*> functions;
    try {
        functions = functions_of(blob, entry, archs);
        if (!entry.others.empty()) {
            std::vector<const void*> images = {functions.at(0)};
            for (const Entry& other : entry.others) {
                event.size += other.file->size();
                images.push_back(functions_of(blob, other, archs).at(0));
            }
            const auto mark = std::find_if(images.begin(), images.end(), is_whole_mark);
            const void* const image = mark == images.end() ? join_images(images) : *mark;
            functions.assign(functions.size(), const_cast<void*>(image));
        }
    } catch (...) {
        forget(blob, entry);
        throw;
    }
    bool is_first = false;
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        BlobState& state = m_states[blob];
        is_first = !state.is_loaded;
        if (is_first) {
            state.functions = functions;
            state.archs = archs;
            for (std::uint32_t i = 0; at.manifest.has_slots() && i < description.symbol_count; ++i) {
                state.lazy.push_back(lazyck_slots[description.first_symbol + i].load(std::memory_order_relaxed));
            }
            state.is_loaded = true;
        }
        // During a record, the first call of each blob must pass through here.
        if (m_record.empty()) store_slots(at, state.functions);
    }
    if (!is_first) return;
    m_store.events().prepare();
    event.seconds = now_seconds() - event.start;
    const Subject subject = subject_of(at.manifest, description, archs);
    if (is_said(Level::debug)) say(Level::debug, "loaded " + subject.words, {"load", subject, event.seconds, "loaded"});
    m_store.events().tell(event, m_store.history(at.manifest));
}

Library::Activity::Activity(Library& library) : m_library(library) {
    const std::lock_guard<std::mutex> guard(library.m_mutex);
    ++library.m_in_flight;
    m_generation = library.m_generation;
}

Library::Activity::~Activity() {
    const std::lock_guard<std::mutex> guard(m_library.m_mutex);
    if (m_generation != m_library.m_generation) return;
    if (--m_library.m_in_flight == 0) m_library.m_changed->notify_all();
}

bool Library::drain(double seconds) {
    std::unique_lock<std::mutex> lock(m_mutex);
    const auto is_idle = [&] { return m_in_flight == 0; };
    if (seconds < 0) {
        m_changed->wait(lock, is_idle);
    } else if (seconds > 0) {
        m_changed->wait_for(lock, std::chrono::duration<double>(seconds), is_idle);
    }
    return is_idle();
}

// Makes a blob ready that the program calls. Under LAZYCK_JIT=warn, a call that had to wait for a
// compile after warm-up is reported.
void Library::make_ready_for_call(const Wanted& wanted) {
    const Activity activity(*this);
    const auto is_obtained = [&] {
        const std::lock_guard<std::mutex> guard(m_mutex);
        return m_states[wanted.blob].entry != nullptr;
    };
    const bool may_be_late = m_store.jit().is_watching() && !is_obtained();
    const double begin = now_seconds();
    make_ready(wanted);
    if (may_be_late) report_late(wanted.blob, now_seconds() - begin);
}

// Warns that a call waited for a blob's compile, unless the entry came from a cache. Each blob is
// reported once.
void Library::report_late(BlobId blob, double seconds) {
    const Row at = row(blob);
    std::string archs;
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        BlobState& state = m_states[blob];
        if (!state.entry || state.entry->origin != "compiled" || std::exchange(state.is_reported, true)) return;
        archs = state.archs;
    }
    const Subject subject = subject_of(at.manifest, at.manifest.blob(at.index), archs);
    say(Level::warn,
        "a call waited " + seconds_text(seconds) + " for the compile of " + subject.words +
            " after warm-up was over (" LAZYCK_ENV_JIT "=warn); add it to the warm-up",
        {"late", subject, seconds, "compiled"});
}

int Library::prefetch(const char* pattern) {
    const Activity activity(*this);
    std::vector<BlobId> chosen;
    for (BlobId i = 0; i < blob_count(); ++i) {
        if (fnmatch(pattern, blob_name(i), 0) == 0) chosen.push_back(first_blob() + i);
    }
    if (chosen.empty()) fail("lazyck: no blob of " + m_path + " matches '" + pattern + "'");
    const std::vector<Wanted> wanted = wanted_here(chosen);
    for_each_in_parallel(wanted.size(), m_store.config().jobs, [&](std::size_t i) { make_ready(wanted[i]); });
    return static_cast<int>(wanted.size());
}

int Library::clear_failures() {
    m_store.forget_bad_places();
    int count = 0;
    const std::lock_guard<std::mutex> guard(m_mutex);
    for (auto& state : m_states) {
        count += state.second.is_failure_final ? 1 : 0;
        state.second.is_failure_final = false;
    }
    return count;
}

void Library::set_cache_dir(const std::string& path) {
    m_store.set_cache_dir(path);
    clear_failures();  // this cache may have what could not be compiled
}

lazyck_stats Library::stats() {
    lazyck_stats out = {};
    out.blobs = blob_count();
    out.symbols = lazyck_slot_count;
    const Counters& counters = m_store.counters();
    out.hits = counters.hits;
    out.misses = counters.misses;
    out.compiles = counters.compiles;
    out.failures = counters.failures;
    out.damaged = counters.damaged;
    out.compile_ns = counters.compile_ns;
    out.remote_hits = counters.remote.hits;
    out.remote_refused = counters.remote.refused;
    out.remote_skipped = counters.remote.skipped;
    const std::lock_guard<std::mutex> guard(m_mutex);
    for (const auto& state : m_states) out.loaded += state.second.is_loaded ? 1 : 0;
    return out;
}

}  // namespace lazyck::rt
