// Makes blobs and their kernels ready: gets their entries and loads them. In the background, it
// makes those ready that the calling function also calls, and those that are likely to be called
// next.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lazyck.h"
#include "library/core.h"
#include "platform/threads.h"

namespace lazyck::rt {

class Readiness {
 public:
    explicit Readiness(Core& core) : m_core(core) {}

    // Makes a blob ready, or the kernel of it that is named. Throws CompileError.
    void make_ready(const Wanted& wanted);
    // Makes a blob ready that the program calls. Under LAZYCK_JIT=warn, a call that had to wait for
    // a compile after warm-up is reported. Throws CompileError.
    void ready_for_call(const Wanted& wanted);
    // Makes those parts ready that waited for their host unit, which is loaded now.
    void load_parts(BlobId blob);
    // Returns whether it can be made ready without a compiler, and without waiting for one.
    bool is_at_hand(const Wanted& wanted);

    // Makes the whole source ready in the background once its kernels have cost about as much.
    // `kernel` was called, one of `kernels`.
    void expect_whole_source(BlobId kernel, BlobId whole, std::size_t kernels);

    // The mutex of the states is held. The thread that works on what is expected is gone.
    void after_fork_in_child();

 private:
    const HostUnit* loaded_host_unit(BlobId blob);
    void ready_part(const Wanted& wanted);
    void report_late(BlobId blob, double seconds);

    std::vector<BlobId> siblings_of(const Call& call);
    void begin_siblings(const Call& call);
    void expect(const std::vector<Wanted>& wanted);
    void ready_expected();

    Core& m_core;
    std::unordered_map<BlobId, std::vector<Wanted>> m_parts_to_load;  // once their host unit is loaded
    Lasting<std::unordered_map<std::string_view, std::uint32_t>> m_slots_by_name;
    std::unordered_set<BlobId> m_begun;                       // siblings, and the blobs whose calls began them
    std::deque<Wanted> m_expected;                            // to be made ready, the likeliest first
    bool m_is_expecting = false;                              // a thread works on m_expected
    std::unordered_map<BlobId, unsigned> m_compiled_kernels;  // number compiled here, by whole source
};

// Makes the blobs ready that names or a profile list, in the background, with a bounded number of
// threads.
class Prefetch {
 public:
    // Makes the blobs of `rows` ready on `workers` threads (0: LAZYCK_JOBS). What is cached comes
    // first, in this order; then what is to be compiled, the longest first as far as the rows or
    // the cache tell. Blobs that the library does not have, since it was built anew, are left out
    // with a warning. When this object ends, the threads finish what they are working on and begin
    // nothing more.
    Prefetch(Core& core, Readiness& readiness, const std::vector<ProfileRow>& rows, unsigned workers);
    Prefetch(const Prefetch&) = delete;
    Prefetch& operator=(const Prefetch&) = delete;
    ~Prefetch() { cancel(); }

    // Waits until the prefetch is over, at most `seconds` (negative: for ever), and sets `error` to
    // that of the first blob that failed. In a child made by fork, which has none of the threads,
    // it is over at once.
    lazyck_progress wait(double seconds, std::string& error) const;
    // Lets no more work begin.
    void cancel();

 private:
    struct State;

    static void run(const std::shared_ptr<State>& state);

    std::shared_ptr<State> m_state;
    pid_t m_process;
};

// Returns rows for the blobs of these names. Throws CompileError for a name that no blob has.
std::vector<ProfileRow> rows_of_names(const Blobs& blobs, const Strings& names);

}  // namespace lazyck::rt
