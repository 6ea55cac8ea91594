// Every entry is in a directory <root>/v1/<library>/<archs>/. Its files are "<entry>.so",
// "<stem>.log", "<entry>.so.seen" (whose modification time tells the last use) and
// "<entry>.so.bad-*". Files are only ever unlinked, so a process that has one open can go on using
// it. A process that trims locks <root>/.trimmed, whose modification time tells the last trim.
#include "store/trim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/text.h"
#include "cache/texts.h"
#include "lazyck_abi.h"
#include "platform/files.h"
#include "platform/messages.h"
#include "store/preambles.h"
#include "store/sources.h"

namespace lazyck::rt {

namespace {

constexpr std::time_t k_trim_interval = 3600;  // seconds
// A log without an entry is that of a failure, which a message names.
constexpr double k_failure_kept = 7 * 24 * 3600;  // seconds

// Holds the files of an entry, or a precompiled preamble, which is a directory.
struct Group {
    std::string library, leaf, stem, preamble;
    Strings names;  // of all files that belong together
    std::uint64_t bytes = 0;
    double last_use = 0;
    bool has_entry = false;
};

// Returns "add-0123456789abcdef" for "add-0123456789abcdef.so.seen", or an empty string if the file
// is not of a cache.
std::string stem_of(const std::string& name) {
    for (const std::string_view end : {".so", ".log", ".so.seen"}) {
        if (name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0) {
            return name.substr(0, name.size() - end.size());
        }
    }
    const std::size_t bad = name.rfind(".so.bad-");
    return bad == std::string::npos ? "" : name.substr(0, bad);
}

// Calls `use` with each directory that may hold entries, the name of its library and its own name.
void for_each_leaf(const Directory& root,
                   const std::function<void(const Directory&, const std::string&, const std::string&)>& use,
                   const Refused& refused) {
    const auto version = root.find(LAZYCK_CACHE_VERSION, refused);
    for (const std::string& name : version ? version->names() : Strings()) {
        const auto library = name[0] == '.' ? std::nullopt : version->find(name, refused);
        for (const std::string& below : library ? library->names() : Strings()) {
            const auto leaf = below[0] == '.' ? std::nullopt : library->find(below, refused);
            if (leaf) use(*leaf, name, below);
        }
    }
}

std::vector<Group> groups_of(const Directory& root) {
    std::vector<Group> all;
    const auto gather = [&](const Directory& leaf, const std::string& library, const std::string& leaf_name) {
        std::unordered_map<std::string, std::size_t> by_stem;
        for (const std::string& name : leaf.names()) {
            const std::string stem = stem_of(name);
            const auto st = stem.empty() ? std::nullopt : leaf.status_of(name);
            if (!st) continue;
            const auto found = by_stem.emplace(stem, all.size());
            if (found.second) all.push_back({library, leaf_name, stem, "", {}});
            Group& group = all[found.first->second];
            group.names.push_back(name);
            group.bytes += static_cast<std::uint64_t>(st->st_blocks) * 512;
            group.last_use = std::max(group.last_use, static_cast<double>(st->st_mtime));
            group.has_entry |= name == stem + ".so";
        }
    };
    for_each_leaf(root, gather, pass_over);
    for (const KeptPreamble& each : preambles_in(root))
        all.push_back({"", "", "", each.name, {}, each.bytes, static_cast<double>(each.last_use)});
    return all;
}

std::string entry_path(const Directory& root, const Group& group) {
    return root.path() + "/" LAZYCK_CACHE_VERSION "/" + group.library + "/" + group.leaf + "/" + group.stem + ".so";
}

// Returns whether the request permits the removal of this group. A preamble belongs to no entry, so
// no list of entries names one.
bool may_go(const Directory& root, const Group& group, const TrimRequest& request) {
    if (!request.only) return true;
    const std::string path = entry_path(root, group);
    return request.only->count(path) > 0 || request.only->count(directory_of(path)) > 0;
}

// Removes a group. Returns whether its entry is gone. The directory is opened again from the root's
// descriptor: keeping all directories open since the listing would take too many of the program's
// descriptors.
bool remove_group(const Directory& root, const Group& group) {
    if (!group.preamble.empty()) return remove_preamble(root, group.preamble);
    const auto version = root.find(LAZYCK_CACHE_VERSION);
    const auto library = version ? version->find(group.library) : std::nullopt;
    const auto leaf = library ? library->find(group.leaf) : std::nullopt;
    if (!leaf) return false;
    // The entry is removed first. Files that remain then belong to no entry, and are removed the
    // next time.
    const std::string entry = group.stem + ".so";
    const int error = group.has_entry ? leaf->remove_file(entry) : 0;
    if (error != 0 && error != ENOENT) return false;
    for (const std::string& name : group.names) {
        if (name != entry) leaf->remove_file(name);
    }
    return true;
}

}  // namespace

void for_each_entry(const std::string& root, const std::function<void(const Directory&, const std::string&)>& use,
                    const Refused& refused) {
    const auto use_leaf = [&](const Directory& leaf, const std::string&, const std::string&) {
        for (const std::string& name : leaf.names()) {
            if (name == stem_of(name) + ".so") use(leaf, name);
        }
    };
    for_each_leaf(Directory::open(root), use_leaf, refused);
}

TrimOutcome trim(const Directory& root, const TrimRequest& request,
                 const std::function<void(const TrimmedEntry&)>& removed) {
    std::vector<Group> all = groups_of(root);
    std::sort(all.begin(), all.end(), [](const Group& a, const Group& b) { return a.last_use < b.last_use; });
    const double now = static_cast<double>(std::time(nullptr));
    TrimOutcome outcome;
    for (const Group& group : all) outcome.kept_bytes += group.bytes;
    for (const Group& group : all) {
        const double age = now - group.last_use;
        const bool is_too_old = request.oldest_seconds >= 0 && age > request.oldest_seconds;
        const bool is_left_over = !group.has_entry && age > k_failure_kept;
        const bool is_too_much = outcome.kept_bytes > request.most_bytes || request.most_bytes == 0;
        const bool is_wanted = !is_too_much && !is_too_old && !is_left_over;
        if (is_wanted || !may_go(root, group, request) || (!request.is_dry && !remove_group(root, group))) {
            outcome.kept += group.has_entry ? 1 : 0;
            continue;
        }
        outcome.kept_bytes -= group.bytes;
        outcome.removed_bytes += group.bytes;
        ++(group.has_entry          ? outcome.removed
           : group.preamble.empty() ? outcome.removed_logs
                                    : outcome.removed_preambles);
        if (group.has_entry) removed({entry_path(root, group), group.bytes, group.last_use});
    }
    if (!request.is_dry) outcome.removed_texts = remove_unused_texts(root);
    return outcome;
}

void trim_now_and_then(const std::string& root, std::uint64_t most_bytes) try {
    const Directory directory = Directory::open(root);
    const UniqueFd stamp = open_at(directory.fd(), LAZYCK_CACHE_TRIMMED, O_RDWR | O_CREAT | O_NONBLOCK);
    struct stat st;
    if (!stamp || fstat(stamp.get(), &st) != 0 || !S_ISREG(st.st_mode)) return;
    const bool is_new = st.st_size == 0;
    if (!is_new && std::labs(std::time(nullptr) - st.st_mtime) < k_trim_interval) return;
    if (flock(stamp.get(), LOCK_EX | LOCK_NB) != 0) return;
    if (pwrite(stamp.get(), "\n", 1, 0) != 1) return;
    futimens(stamp.get(), nullptr);
    remove_unused_bundles(directory);
    remove_unused_preambles(directory);
    const auto ignore = [](const TrimmedEntry&) {};
    if (trim(directory, {UINT64_MAX, -1, true}, ignore).kept_bytes <= most_bytes) return;
    const TrimOutcome outcome = trim(directory, {most_bytes / 10 * 9}, ignore);
    log_message(Level::info,
                "the cache '" + root + "' was larger than " + size_text(static_cast<double>(most_bytes)) +
                    ": removed the " + std::to_string(outcome.removed) + " least recently used blob" +
                    (outcome.removed == 1 ? ", " : "s, ") + size_text(static_cast<double>(outcome.removed_bytes)) +
                    " (" LAZYCK_ENV_CACHE_MAXSIZE ")",
                {"trim"});
} catch (const std::exception& e) {
    log_message(Level::warn, std::string("cannot trim the cache: ") + e.what());
}

}  // namespace lazyck::rt
