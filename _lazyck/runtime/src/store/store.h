// Gets a blob's entry: looks it up, takes the lock, looks it up again, and compiles it. Every lazy
// library and lazyck-rt use this.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cache/entry.h"
#include "cache/named_copies.h"
#include "lazyck_abi.h"
#include "store/preambles.h"
#include "store/remote.h"

namespace lazyck::rt {

class Store {
 public:
    // With `may_stand_in`, a store that cannot write the cache compiles into another place, for
    // this process only.
    Store(const Config& config, Places places, bool may_stand_in = false)
        : shop(config, std::move(places)), m_may_stand_in(may_stand_in) {}

    // Returns the verified entry of blob `index` for `archs`: what `find` finds, or else what
    // `make` compiles. Throws CompileError, also if compiling is forbidden.
    Entry obtain(const ManifestView& manifest, std::uint32_t index, const Strings& archs);
    // Returns the verified entry if a cache has it.
    std::optional<Entry> find(const ManifestView& manifest, std::uint32_t index, const Strings& archs);
    // Compiles the entry, unless a second look-up under the blob's lock finds it. While it holds a
    // lock or a permit, it calls neither the dynamic loader nor the C library's name services or
    // locale, nor code of the program.
    Entry make(const ManifestView& manifest, std::uint32_t index, const Strings& archs);
    // Returns the entry from a remote cache if one has it, and compiles nothing.
    std::optional<Entry> fetch(const ManifestView& manifest, std::uint32_t index, const Strings& archs);
    // Returns whether to compile blob `index` by its parts (see ByKernel), if it has parts and
    // none of it is cached.
    bool goes_by_kernel(const ManifestView& manifest, std::uint32_t index);
    // Records that a blob has no host unit. Later decisions on this blob and on others of its
    // library take it into account.
    void refuse_by_kernel(const ManifestView& manifest, std::uint32_t index);

    // Returns whether a cache has the entry, and sets `path` to where it is, or would be in the
    // user's own cache.
    bool is_cached(const ManifestView& manifest, std::uint32_t index, const Strings& archs, std::string& path);

    Preambles& preambles() { return m_preambles; }
    // Returns the expected cost of the blob's compile, by earlier ones.
    Guess expected_cost(const ManifestView& manifest, std::uint32_t index, const Strings& archs);

    // Writes pending events at the end of the process, and removes the files that were for this
    // process alone.
    void close();

    // These are handlers of fork. The child gets new copies of what other threads were changing,
    // with all permits free.
    void before_fork();
    void after_fork_in_parent();
    void after_fork_in_child();

    NamedCopies& named_copies() { return *m_copies; }

    Workshop shop;

 private:
    // Returns nothing if compiling is not permitted and no remote cache has the entry.
    std::optional<Entry> make_somewhere(const ManifestView& manifest, const BlobRow& blob, const EntryKey& key,
                                        bool may_compile, Caches& caches);
    // Makes the entry unless another process does first. Sets `service_problem` if a compile
    // service was to compile the entry and did not.
    std::optional<Entry> make_in_turn(const Missing& missing, bool may_compile, std::string& service_problem);
    // Returns the entry, open, from a remote cache or from a compile service.
    UniqueFd fetch(const Missing& missing, RemoteEntry* remote, bool may_compile, std::string& origin,
                   std::string& service_problem);
    void bound(Cache& cache);
    [[noreturn]] void fail_frozen(const BlobRow& blob, const EntryKey& key, Cache& cache) const;

    Preambles m_preambles{shop};
    std::unique_ptr<NamedCopies> m_copies = std::make_unique<NamedCopies>(LAZYCK_DEFAULT_CACHE_NAME);
    const bool m_may_stand_in;
};

}  // namespace lazyck::rt
