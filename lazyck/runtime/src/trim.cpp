// Every entry is below <root>/v1/<library>/<archs>/; "<entry>.so" with "<stem>.log", "<entry>.so.seen" (whose
// modification time tells the last use) and "<entry>.so.bad-*". Names are only ever unlinked: whoever has a file open
// goes on with it. <root>/.trimmed is locked by the one who trims, and its modification time says when that was.
#include "trim.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "archive.h"
#include "failure.h"
#include "files.h"
#include "lazyck_abi.h"
#include "messages.h"
#include "text.h"

namespace lazyck::rt {

namespace {

constexpr std::time_t k_trim_interval = 3600;  // seconds
// A log without an entry is of a failure, which somebody may be reading about.
constexpr double k_failure_kept = 7 * 24 * 3600;  // seconds

struct Group {
    std::string directory, stem;
    Strings names;  // of all files that belong together
    std::uint64_t bytes = 0;
    double last_use = 0;
    bool has_entry = false;
};

Strings names_in(const std::string& directory) {
    Strings names;
    const std::unique_ptr<DIR, int (*)(DIR*)> listing(opendir(directory.c_str()), closedir);
    while (const dirent* const entry = listing ? readdir(listing.get()) : nullptr) {
        if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
    }
    return names;
}

// "add-0123456789abcdef" of "add-0123456789abcdef.so.seen"; "" for what is not ours.
std::string stem_of(const std::string& name) {
    for (const std::string_view end : {".so", ".log", ".so.seen"}) {
        if (name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0) {
            return name.substr(0, name.size() - end.size());
        }
    }
    const std::size_t bad = name.rfind(".so.bad-");
    return bad == std::string::npos ? "" : name.substr(0, bad);
}

void gather(const std::string& directory, std::vector<Group>& all) {
    std::unordered_map<std::string, std::size_t> by_stem;
    const UniqueFd at = open_file(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (!at) return;
    for (const std::string& name : names_in(directory)) {
        const std::string stem = stem_of(name);
        struct stat st;
        if (stem.empty() || fstatat(at.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
        const auto found = by_stem.emplace(stem, all.size());
        if (found.second) {
            all.emplace_back();
            all.back().directory = directory;
            all.back().stem = stem;
        }
        Group& group = all[found.first->second];
        group.names.push_back(name);
        group.bytes += static_cast<std::uint64_t>(st.st_blocks) * 512;
        group.last_use = std::max(group.last_use, static_cast<double>(st.st_mtime));
        group.has_entry |= name == stem + ".so";
    }
}

std::vector<Group> groups_of(const std::string& root) {
    std::vector<Group> all;
    const std::string version = root + "/" LAZYCK_CACHE_VERSION;
    for (const std::string& library : names_in(version)) {
        for (const std::string& leaf : names_in(version + "/" + library)) {
            gather(version + "/" + library + "/" + leaf, all);
        }
    }
    return all;
}

void remove_group(const Group& group) {
    const UniqueFd at = open_file(group.directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    // The entry first: what is left of the rest then belongs to nothing, and goes the next time.
    const std::string entry = group.stem + ".so";
    if (at && group.has_entry) unlinkat(at.get(), entry.c_str(), 0);
    for (const std::string& name : group.names) {
        if (at && name != entry) unlinkat(at.get(), name.c_str(), 0);
    }
}

void check_root(const std::string& root) {
    struct stat st;
    if (lstat(root.c_str(), &st) != 0) fail_system("the cache '" + root + "'", errno);
    check_trusted(root, st);
}

}  // namespace

void for_each_entry(const std::string& root, const std::function<void(const std::string&)>& use) {
    check_root(root);
    for (const Group& group : groups_of(root)) {
        if (group.has_entry) use(group.directory + "/" + group.stem + ".so");
    }
}

TrimOutcome trim(const std::string& root, const TrimRequest& request,
                 const std::function<void(const TrimmedEntry&)>& removed) {
    check_root(root);
    std::vector<Group> all = groups_of(root);
    std::sort(all.begin(), all.end(), [](const Group& a, const Group& b) { return a.last_use < b.last_use; });
    const double now = static_cast<double>(std::time(nullptr));
    TrimOutcome outcome;
    for (const Group& group : all) outcome.kept_bytes += group.bytes;
    for (const Group& group : all) {
        const double age = now - group.last_use;
        const bool is_too_old = request.oldest_seconds >= 0 && age > request.oldest_seconds;
        const bool is_left_over = !group.has_entry && age > k_failure_kept;
        if (outcome.kept_bytes <= request.most_bytes && !is_too_old && !is_left_over) {
            outcome.kept += group.has_entry ? 1 : 0;
            continue;
        }
        if (!request.is_dry) remove_group(group);
        outcome.kept_bytes -= group.bytes;
        outcome.removed_bytes += group.bytes;
        outcome.removed += group.has_entry ? 1 : 0;
        if (group.has_entry) removed({group.directory + "/" + group.stem + ".so", group.bytes, group.last_use});
    }
    return outcome;
}

void trim_now_and_then(const std::string& root, std::uint64_t most_bytes) {
    const UniqueFd stamp = open_file(root + "/.trimmed", O_RDWR | O_CREAT | O_NOFOLLOW);
    struct stat st;
    if (!stamp || fstat(stamp.get(), &st) != 0) return;
    const bool is_new = st.st_size == 0;
    if (!is_new && std::labs(std::time(nullptr) - st.st_mtime) < k_trim_interval) return;
    if (flock(stamp.get(), LOCK_EX | LOCK_NB) != 0) return;
    if (pwrite(stamp.get(), "\n", 1, 0) != 1) return;
    futimens(stamp.get(), nullptr);
    remove_unused_bundles(root);
    TrimRequest request;
    const TrimOutcome now = trim(root, {UINT64_MAX, -1, true}, [](const TrimmedEntry&) {});
    if (now.kept_bytes <= most_bytes) return;
    request.most_bytes = most_bytes / 10 * 9;
    const TrimOutcome outcome = trim(root, request, [](const TrimmedEntry&) {});
    say(Level::info, "the cache '" + root + "' was larger than " + std::to_string(most_bytes >> 20) +
                         " MB: removed the " + std::to_string(outcome.removed) +
                         " blobs that were not used for longest, " + std::to_string(outcome.removed_bytes >> 20) +
                         " MB (" LAZYCK_ENV_CACHE_MAXSIZE ")");
}

}  // namespace lazyck::rt
