#include "library/prefetching.h"

#include <algorithm>
#include <exception>
#include <unordered_set>
#include <utility>

#include "base/failure.h"
#include "platform/messages.h"

namespace lazyck::rt {

namespace {

using Ids = std::unordered_map<std::string, BlobId>;

// What is to be made ready, and the seconds that each compile is expected to take (0: unknown).
struct Plan {
    std::vector<Wanted> wanted;
    std::vector<double> seconds;
};

// Returns what a profile names: a blob, or a part of one, whose name begins with the blob's.
std::optional<Wanted> wanted_by_name(const Blobs& blobs, const std::string& name, const Ids& ids) {
    const auto found = ids.find(name);
    if (found != ids.end()) return Wanted{found->second, nullptr, false, "", ""};
    const std::size_t dot = name.rfind('.');
    const auto blob = dot == std::string::npos ? ids.end() : ids.find(name.substr(0, dot));
    if (blob == ids.end()) return std::nullopt;
    const ManifestRow at = blobs.row(blob->second);
    if (!at.manifest.has_parts(at.index)) return std::nullopt;
    return Wanted{blob->second, nullptr, true, name, ""};
}

Plan plan_of(const Blobs& library, const std::vector<ProfileRow>& rows) {
    const Ids ids = library.ids_by_name();
    std::vector<Wanted> chosen;
    std::vector<BlobId> blobs;
    std::vector<double> seconds;
    std::string missing;
    std::size_t missing_count = 0;
    for (const ProfileRow& row : rows) {
        auto found = wanted_by_name(library, row.blob, ids);
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
    const std::vector<Wanted> here = library.wanted_here(blobs);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
        chosen[i].archs = here[i].archs;
        chosen[i].is_called = by_kernel.count(chosen[i].blob) != 0;
    }
    if (missing_count > 0) {
        say(Level::warn, std::to_string(missing_count) + " of " + std::to_string(rows.size()) +
                             " blobs to prefetch are not in '" + library.path() + "' (such as '" + visible(missing) +
                             "'): recorded with another build of it?");
    }
    return {std::move(chosen), std::move(seconds)};
}

double expected_seconds(Core& core, const Wanted& wanted) {
    const ManifestRow at = core.blobs.row(wanted.blob);
    try {
        double seconds = 0;
        const Strings archs = wanted.archs ? *wanted.archs : core.blobs.archs_here(wanted.blob);
        for (const Strings& one : archs_of_entries(at.manifest.blob(at.index), archs))
            seconds += core.store.expected_cost(at, one).blob.seconds;
        return seconds;
    } catch (const std::exception&) {
        return 0;  // the compile will report what is wrong
    }
}

std::unique_ptr<Prefetch> begin_prefetch(Core& core, Readiness& readiness, const std::vector<ProfileRow>& rows,
                                         unsigned workers) {
    Plan plan = plan_of(core.blobs, rows);
    stay_loaded();
    const auto wanted = std::make_shared<const std::vector<Wanted>>(std::move(plan.wanted));
    const auto expect = [&core, wanted](std::size_t i) { return expected_seconds(core, (*wanted)[i]); };
    const auto work = [&readiness, wanted, activity = std::make_shared<Activity>(core.states)](std::size_t i,
                                                                                               bool may_compile) {
        const Wanted& each = (*wanted)[i];
        if (!may_compile && !readiness.is_at_hand(each)) return false;
        readiness.make_ready(each);
        if (each.part.empty()) readiness.load_parts(each.blob);
        return true;
    };
    return std::make_unique<Prefetch>(plan.seconds, workers == 0 ? core.store.config.jobs : workers, work, expect);
}

}  // namespace

std::unique_ptr<Prefetch> prefetch_names(Core& core, Readiness& readiness, const Strings& names, unsigned workers) {
    const Ids ids = core.blobs.ids_by_name();
    std::vector<ProfileRow> rows(names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (!wanted_by_name(core.blobs, names[i], ids))
            fail("lazyck: " + core.blobs.path() + " has no blob '" + visible(names[i]) + "'");
        rows[i].blob = names[i];
    }
    return begin_prefetch(core, readiness, rows, workers);
}

std::unique_ptr<Prefetch> prefetch_profile(Core& core, Readiness& readiness, const std::string& profile,
                                           unsigned workers) {
    return begin_prefetch(core, readiness, read_profile(profile, core.blobs.manifest().library()), workers);
}

}  // namespace lazyck::rt
