// How the program loaded this library decides what its code refers to, and so what its blobs must
// refer to. The loader does not tell, so it is asked by questions whose answers differ.
#include <dlfcn.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <vector>

#include "base/failure.h"
#include "lazyck_abi.h"
#include "library/core.h"
#include "platform/files.h"
#include "platform/messages.h"

namespace lazyck::rt {

namespace {

constexpr char k_nowhere[] = "/dev/null/lazyck";  // a directory that cannot exist

// An object in the loader's list.
struct Object {
    std::string name;  // by which the loader finds it again; empty for the program
    std::string soname;
    Strings needed;
    std::uintptr_t base;
    const ElfW(Dyn) * dynamic;
    bool is_self;

    bool is_called(const std::string& other) const {
        return other == name || other == soname || file_name_of(other) == file_name_of(name);
    }

    // Returns the address in an entry of the dynamic section, or 0. On most machines, the loader
    // turns the offset in memory into an address.
    std::uintptr_t address_in(ElfW(Sxword) tag) const {
        for (const ElfW(Dyn)* row = dynamic; row != nullptr && row->d_tag != DT_NULL; ++row) {
            if (row->d_tag == tag) return row->d_un.d_ptr < base ? row->d_un.d_ptr + base : row->d_un.d_ptr;
        }
        return 0;
    }
};

Object object_of(const dl_phdr_info& info) {
    const auto own = reinterpret_cast<std::uintptr_t>(lazyck_manifest);
    Object object = {info.dlpi_name, "", {}, info.dlpi_addr, nullptr, false};
    for (unsigned i = 0; i < info.dlpi_phnum; ++i) {
        const ElfW(Phdr)& row = info.dlpi_phdr[i];
        const std::uintptr_t begin = info.dlpi_addr + row.p_vaddr;
        object.is_self |= row.p_type == PT_LOAD && own >= begin && own - begin < row.p_memsz;
        if (row.p_type == PT_DYNAMIC) object.dynamic = reinterpret_cast<const ElfW(Dyn)*>(begin);
    }
    const std::uintptr_t strings = object.address_in(DT_STRTAB);
    if (strings == 0) return object;
    for (const ElfW(Dyn)* row = object.dynamic; row->d_tag != DT_NULL; ++row) {
        const char* const text = reinterpret_cast<const char*>(strings + row->d_un.d_val);
        if (row->d_tag == DT_NEEDED) object.needed.emplace_back(text);
        if (row->d_tag == DT_SONAME) object.soname = text;
    }
    return object;
}

// Returns the objects in the loader's list up to this library, in the order of the list, or none.
std::vector<Object> objects_up_to_self() {
    std::vector<Object> objects;
    const auto visit = [](dl_phdr_info* info, std::size_t, void* data) {
        auto& found = *static_cast<std::vector<Object>*>(data);
        found.push_back(object_of(*info));
        return found.back().is_self ? 1 : 0;
    };
    dl_iterate_phdr(visit, &objects);
    if (!objects.empty() && !objects.back().is_self) objects.clear();
    return objects;
}

bool needs(const Object& object, const Object& other) {
    return std::any_of(object.needed.begin(), object.needed.end(),
                       [&](const std::string& name) { return other.is_called(name); });
}

// Returns the first object that needs the last one, itself or by others. The loader appends to its
// list what it loads. So an object that comes before this library and needs it was loaded by the
// same call, and the first such is what the program opened.
std::size_t opened_by_program(const std::vector<Object>& objects) {
    std::vector<std::size_t> found = {objects.size() - 1};
    for (std::size_t at = 0; at < found.size(); ++at) {  // each object is found once
        for (std::size_t i = 0; i < objects.size(); ++i) {
            if (std::find(found.begin(), found.end(), i) == found.end() && needs(objects[i], objects[found[at]]))
                found.push_back(i);
        }
    }
    return *std::min_element(found.begin(), found.end());
}

// Returns what the loader searches for a reference of this library, after the program's libraries:
// the library that the program opened, and what that needs, breadth first, up to this library. It
// is nothing if this is one of the program's libraries itself.
std::vector<Object> searched_up_to_self(const std::vector<Object>& objects) {
    const std::size_t self = objects.size() - 1, opened = opened_by_program(objects);
    if (objects[opened].name.empty()) return {};
    std::vector<std::size_t> order = {opened};
    for (std::size_t at = 0; at < order.size(); ++at) {  // each object is in the order once
        for (const std::string& name : order.back() == self ? Strings() : objects[order[at]].needed) {
            const auto called =
                std::find_if(objects.begin(), objects.end(), [&](const Object& each) { return each.is_called(name); });
            const auto next = static_cast<std::size_t>(called - objects.begin());
            const bool is_new = std::find(order.begin(), order.end(), next) == order.end();
            if (is_new && next <= self && order.back() != self) order.push_back(next);
        }
    }
    std::vector<Object> searched;
    for (const std::size_t each : order) searched.push_back(objects[each]);
    return searched;
}

bool has_search_path(const Object& object) {
    return object.address_in(DT_RUNPATH) != 0 || object.address_in(DT_RPATH) != 0;
}

// Returns whether the program may have loaded the last object by dlopen: the loader itself is in
// its list where the program's start has put it.
bool may_be_opened(const std::vector<Object>& objects) {
    const std::uintptr_t loader = getauxval(AT_BASE);
    return std::any_of(objects.begin(), objects.end(),
                       [&](const Object& each) { return loader == 0 || each.base == loader; });
}

// An object that is open in the loader. It is closed at the end.
using OpenObject = std::unique_ptr<void, int (*)(void*)>;

// Returns the directories in which dlopen searches for what an object loads, in order.
Strings searched_by(const OpenObject& object) {
    Strings found;
    Dl_serinfo size;
    if (dlinfo(object.get(), RTLD_DI_SERINFOSIZE, &size) != 0) return found;
    const auto all = std::make_unique<std::uintptr_t[]>(size.dls_size / sizeof(std::uintptr_t) + 1);
    auto* const info = new (all.get()) Dl_serinfo(size);
    if (dlinfo(object.get(), RTLD_DI_SERINFO, info) != 0) return found;
    for (unsigned i = 0; i < size.dls_cnt; ++i) found.emplace_back(info->dls_serpath[i].dls_name);
    return found;
}

// Returns the directories that the library searches before those of the system, unless each object
// searches them. The system's are those that an object with a DT_RUNPATH searches after it.
std::string own_search(const OpenObject& self, const OpenObject& other) {
    Strings own = searched_by(self);
    const Strings others = searched_by(other);
    const auto mark = std::find(others.begin(), others.end(), k_nowhere);
    if (mark == others.end()) return "";
    const auto system = static_cast<std::size_t>(others.end() - mark) - 1;
    if (own.size() >= system && std::equal(mark + 1, others.end(), own.end() - static_cast<std::ptrdiff_t>(system)))
        own.resize(own.size() - system);
    return own == Strings(others.begin(), mark) ? "" : join(own, ":");
}

// Returns whether the loader looks into this library before it looks into the program. Both have
// the mark: this library from its link, the program from a library that is loaded with RTLD_GLOBAL.
bool is_deep(const OpenObject& program, const char* name) {
    void* const first = dlsym(RTLD_DEFAULT, name);
    return first != nullptr && first != dlsym(program.get(), name);
}

// Calls `visit` with the name, the row and the number of each of an object's symbols, until it
// returns true.
template <typename Visit>
void visit_symbols(const Object& object, Visit visit) {
    const auto* const symbols = reinterpret_cast<const ElfW(Sym)*>(object.address_in(DT_SYMTAB));
    const auto* const strings = reinterpret_cast<const char*>(object.address_in(DT_STRTAB));
    const auto* const table = reinterpret_cast<const std::uint32_t*>(object.address_in(DT_GNU_HASH));
    if (symbols == nullptr || strings == nullptr || table == nullptr) return;
    // See ElfView. What is undefined comes before the first symbol of the table.
    const std::uint32_t buckets = table[0], first = table[1], filter_words = table[2];
    const std::uint32_t* const bucket = table + 4 + 2 * filter_words;
    const std::uint32_t* const chain = bucket + buckets;
    std::uint32_t last = buckets == 0 ? 0 : *std::max_element(bucket, chain);
    while (last != 0 && (chain[last - first] & 1) == 0) ++last;
    for (std::uint32_t i = 1; i < (last == 0 ? first : last + 1); ++i) {
        const unsigned type = ELF64_ST_TYPE(symbols[i].st_info);
        const bool is_plain = type == STT_FUNC || type == STT_OBJECT || type == STT_NOTYPE;
        if (is_plain && visit(strings + symbols[i].st_name, symbols[i], i)) return;
    }
}

// Returns the same for a library that was loaded with RTLD_GLOBAL: a mark of the program comes
// after the library's own. So any name will do of which the program and the library have one each.
bool is_deep_and_global(const Object& self, const OpenObject& program, const OpenObject& own) {
    bool is_found = false;
    visit_symbols(self, [&](const char* name, const ElfW(Sym)&, std::uint32_t) {
        void* const theirs = dlsym(program.get(), name);
        if (theirs == nullptr || theirs == dlsym(own.get(), name)) return false;
        is_found = is_deep(program, name);
        return true;
    });
    dlerror();
    return is_found;
}

void construct_nothing() {}

// Has the loader find no constructors in the dynamic section of this library. The loader's lock,
// which the thread sanitizer does not see, keeps others out meanwhile.
__attribute__((no_sanitize("thread"))) int empty_constructors(dl_phdr_info* info, std::size_t, void*) {
    const Object object = object_of(*info);
    if (!object.is_self || object.name.empty()) return object.is_self ? 1 : 0;
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    auto* const dynamic = const_cast<ElfW(Dyn)*>(object.dynamic);
    ElfW(Dyn)* last = dynamic;
    while (last->d_tag != DT_NULL) ++last;
    // The pages of the section that cannot be written, by the linker's or the loader's choice.
    std::uintptr_t begin = 0, end = 0;
    for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr)& row = info->dlpi_phdr[i];
        if (row.p_type != PT_GNU_RELRO && (row.p_type != PT_LOAD || (row.p_flags & PF_W) != 0)) continue;
        const std::uintptr_t from = object.base + row.p_vaddr, to = (from + row.p_memsz) & ~(page - 1);
        const std::uintptr_t low = std::max(from, reinterpret_cast<std::uintptr_t>(dynamic)) & ~(page - 1),
                             high = std::min(to, reinterpret_cast<std::uintptr_t>(last));
        if (low < high) begin = low, end = high;
    }
    const auto protect = [&](int how) { return mprotect(reinterpret_cast<void*>(begin), end - begin, how) == 0; };
    if (begin != end && !protect(PROT_READ | PROT_WRITE)) return 1;
    for (ElfW(Dyn)* row = dynamic; row != last; ++row) {
        if (row->d_tag == DT_INIT) row->d_un.d_ptr = reinterpret_cast<std::uintptr_t>(&construct_nothing) - object.base;
        if (row->d_tag == DT_INIT_ARRAYSZ) row->d_un.d_val = 0;
    }
    if (begin != end) protect(PROT_READ);
    return 1;
}

const void* object_with(const void* address) {
    Dl_info info;
    return dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

// Goes up the stack while this library, libc and the loader are on it.
_Unwind_Reason_Code look_for_dlclose(_Unwind_Context* context, void* is_found) {
    const void* const passed[] = {object_with(lazyck_manifest), object_with(reinterpret_cast<const void*>(&std::exit)),
                                  object_with(reinterpret_cast<const void*>(&dlclose)),
                                  reinterpret_cast<const void*>(getauxval(AT_BASE))};
    Dl_info info;
    // The instruction after a call may be that of the next function.
    if (dladdr(reinterpret_cast<const void*>(_Unwind_GetIP(context) - 1), &info) == 0) return _URC_END_OF_STACK;
    const bool is_dlclose = info.dli_sname != nullptr && std::strcmp(info.dli_sname, "dlclose") == 0;
    *static_cast<bool*>(is_found) = is_dlclose;
    const bool is_passed = std::find(std::begin(passed), std::end(passed), info.dli_fbase) != std::end(passed);
    return is_passed && !is_dlclose ? _URC_NO_REASON : _URC_END_OF_STACK;
}

}  // namespace

bool is_being_closed() {
    bool is_found = false;
    _Unwind_Backtrace(look_for_dlclose, &is_found);
    return is_found;
}

void forget_constructors() {
    static machine::Flag s_is_done{false};
    if (constructors_run() && !s_is_done.exchange(true)) dl_iterate_phdr(empty_constructors, nullptr);
}

Scope own_scope(const std::string& library) {
    const std::vector<Object> objects = objects_up_to_self();
    if (objects.empty() || objects.back().dynamic == nullptr)
        fail("lazyck: '" + library + "' is not in the loader's list");
    const Object& self = objects.back();
    const OpenObject program(dlopen(nullptr, RTLD_LAZY), dlclose);
    const bool is_program = self.name.empty();
    const std::vector<Object> searched = searched_up_to_self(objects);
    const bool has_search = has_search_path(self) || std::any_of(searched.begin(), searched.end(), has_search_path);
    Scope scope;
    for (const Object& each : searched) scope.before.push_back(each.name);
    const OpenObject own(dlopen(is_program ? nullptr : self.name.c_str(), RTLD_LAZY | RTLD_NOLOAD), dlclose);
    const link_map* map = nullptr;
    Lmid_t space = LM_ID_BASE;
    if (own == nullptr || dlinfo(own.get(), RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0 ||
        map->l_ld != self.dynamic)
        fail("lazyck: '" + library + "' is not found again by the name that the loader has for it, '" + self.name +
             "'");
    dlinfo(own.get(), RTLD_DI_LMID, &space);
    const bool is_opened = !searched.empty() && space == LM_ID_BASE && may_be_opened(objects);
    const bool is_global = is_opened && dlsym(program.get(), LAZYCK_SYMBOL_MARK) == lazyck_manifest;
    const bool is_local = is_opened && !is_global;
    if (is_local && dlsym(own.get(), LAZYCK_SYMBOL_MARK) == nullptr)
        fail("lazyck: '" + library + "' does not export " LAZYCK_SYMBOL_MARK ", which tells how it was loaded");
    if (is_global) scope.is_deep = is_deep_and_global(self, program, own);
    if (!is_local && !has_search) return scope;
    std::string reason;
    const EmptyLibrary probe = {{}, "", k_nowhere, {LAZYCK_SYMBOL_MARK}};
    const OpenObject other(open_empty(probe, is_local ? RTLD_GLOBAL : RTLD_LOCAL, reason), dlclose);
    if (other == nullptr) fail("lazyck: cannot learn how '" + library + "' was loaded: " + reason);
    if (has_search) scope.search = own_search(own, other);
    if (is_local) scope.is_deep = is_deep(program, LAZYCK_SYMBOL_MARK);
    return scope;
}

}  // namespace lazyck::rt
