// The archive is <root>/<library>/sources.tar.gz, written by _lazyck/postbuild/bundle.py. Its
// members are "<library>/tree/..." and, as the last one, "<library>/contents". Hence an unpacked
// bundle that has `contents` is complete. It is unpacked at <cache>/.bundles/<32 digits of its
// SHA-256>; that directory's modification time is the time of the last use.
#include "cache/archive.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <ctime>

#include "base/failure.h"
#include "base/sha256.h"
#include "lazyck_abi.h"
#include "platform/environment.h"
#include "platform/files.h"
#include "platform/lock.h"
#include "platform/messages.h"
#include "platform/process.h"
#include "platform/staging.h"

namespace lazyck::rt {

namespace {

constexpr std::size_t k_bundle_digits = 32;
constexpr unsigned k_depth_of_bundles = 2;  // including the root
constexpr double k_patience = 120;          // seconds
constexpr double k_longest_unpacking = 600;
constexpr std::time_t k_bundle_age = 7 * 24 * 3600;
constexpr std::size_t k_longest_excerpt = 1000;
constexpr std::size_t k_room = 1 << 20;

// Returns whether the bundle at `place` is complete, and notes that it was used. Throws
// CompileError if other users could have put it there.
bool is_whole(const std::string& place, const std::string& library) {
    if (!is_file(place + "/" + library + "/contents")) return false;
    const UniqueFd directory = open_trusted_directory(place, k_depth_of_bundles);
    futimens(directory.get(), nullptr);
    return true;
}

Strings environment_of_tar() { return {"PATH=" + search_path(environment("PATH")), "LC_ALL=C"}; }

// Returns why a small file cannot be written in `directory`, as an errno value, or 0 if it can. A
// full disk or a quota is a fault of the place, so another place may do. A damaged archive is not.
int find_write_error(int directory) {
    const UniqueFd file = open_at(directory, "room", O_WRONLY | O_CREAT | O_TRUNC);
    if (file && write_all(file.get(), std::string(k_room, ' '))) return 0;
    return errno;
}

[[noreturn]] void fail_to_read(const std::string& path, int error) {
    fail("lazyck: cannot read '" + path + "': " + system_text(error) + "; install the library again");
}

void run_tar(const std::string& archive, const StagingDirectory& staging, int into) {
    const UniqueFd file = open_file(archive, O_RDONLY | O_NONBLOCK);
    if (!file) fail_to_read(archive, errno);
    const UniqueFd log = open_at(staging.fd(), "log", O_RDWR | O_CREAT | O_APPEND);
    if (!log) fail_system("cannot write to '" + staging.path() + "'", errno);
    Command command;
    command.argv = {"tar", "-xzof", "-"};
    command.environment = environment_of_tar();
    command.directory = into;
    command.input = file.get();
    command.output = log.get();
    command.timeout_seconds = k_longest_unpacking;
    command.beat = [&](double seconds) {
        say(Level::info, "still unpacking '" + archive + "' (" + seconds_text(seconds) + ")", {"unpack", {}, seconds});
    };
    say(Level::debug, "unpacking '" + archive + "'", {"unpack"});
    const Outcome outcome = run_command(command);
    // An unknown ending is judged by the files that tar left, which the caller checks.
    if (outcome.ending != Ending::failed) return;
    if (const int error = find_write_error(staging.fd()))
        fail_system("cannot unpack '" + archive + "' into '" + staging.path() + "'", error);
    std::string said = read_text(log.get(), 0, k_longest_excerpt);
    while (!said.empty() && said.back() == '\n') said.pop_back();
    fail("lazyck: cannot unpack '" + archive + "' into the cache: " + outcome.text +
         (said.empty() ? "" : ": " + visible(said)) +
         "\n  this needs tar and gzip; or unpack it once in its place: tar -xzf " + shell_quote(archive) + " -C " +
         shell_quote(directory_of(directory_of(archive))));
}

// Unpacks `archive` to `place`. `is_made` returns whether another process was first, which can
// happen where the file system has no locks, or where this process took long. What the other
// process unpacked is then left alone, because others may already compile from it.
void unpack(const std::string& archive, const std::string& library, const std::string& place, Cache& cache,
            const std::function<bool()>& is_made) {
    const StagingDirectory staging(owned_prefix(cache.root() + "/" LAZYCK_CACHE_STAGING "/bundle"), k_depth_of_staging);
    const char* const name = "unpacked";
    if (mkdirat(staging.fd(), name, 0700) != 0) fail_system("cannot unpack '" + archive + "'", errno);
    const UniqueFd into = open_at(staging.fd(), name, O_RDONLY | O_DIRECTORY);
    if (!into) fail_system("cannot unpack '" + archive + "'", errno);
    run_tar(archive, staging, into.get());
    if (!is_file_in(into.get(), library + "/contents"))
        fail("lazyck: '" + archive + "' is damaged: it has no contents; install the library again");
    const UniqueFd bundles = open_trusted_directory(directory_of(place), k_depth_of_bundles - 1);
    const std::string own = file_name_of(place);
    if (is_made()) return;
    remove_tree(bundles.get(), own);
    if (renameat(staging.fd(), name, bundles.get(), own.c_str()) == 0) return;
    if ((errno != ENOTEMPTY && errno != EEXIST) || !is_whole(place, library)) {
        fail_system("cannot put the unpacked bundle at '" + place + "'", errno);
    }
}

}  // namespace

std::string archive_path(const std::string& root, const std::string& library) {
    return root + "/" + library + "/" LAZYCK_BUNDLE_ARCHIVE;
}

std::string Archives::unpacked(const std::string& path, const std::string& library, const std::string& source,
                               Cache& cache, const std::function<bool(const std::string& root)>& is_good) {
    const std::string digest = digest_of(path);
    const std::string place = cache.make_own_directory(LAZYCK_CACHE_BUNDLES) + "/" + digest;
    const auto is_made = [&] {
        return is_whole(place, library) && is_file(place + "/" + source) && (is_known_good(place) || is_good(place));
    };
    if (!is_made()) {
        const BlobLock lock(cache.root() + "/" LAZYCK_CACHE_LOCKS "/bundle-" + digest + ".lock",
                            {"the bundle of " + visible(library), library, "", "", ""}, k_patience, is_made);
        if (!is_made()) unpack(path, library, place, cache, is_made);
    }
    const std::lock_guard<std::mutex> guard(m_mutex);
    m_good.insert(place);
    return place;
}

bool Archives::is_known_good(const std::string& root) {
    const std::lock_guard<std::mutex> guard(m_mutex);
    return m_good.count(root) != 0;
}

std::string Archives::digest_of(const std::string& path) {
    struct stat st;
    if (stat(path.c_str(), &st) != 0) fail_to_read(path, errno);
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        const auto known = m_digests.find(path);
        if (known != m_digests.end() && is_same_file(known->second.first, st)) return known->second.second;
    }
    MappedFile file;
    if (const int error = file.map(path, true)) fail_to_read(path, error);
    const std::string digest = sha256_hex(file.data(), file.size()).substr(0, k_bundle_digits);
    const std::lock_guard<std::mutex> guard(m_mutex);
    m_digests[path] = {file.status(), digest};
    return digest;
}

void remove_unused_bundles(const Directory& root) {
    const auto bundles = root.find(LAZYCK_CACHE_BUNDLES);
    for (const std::string& name : bundles ? bundles->names() : Strings()) {
        const auto st = bundles->status_of(name);
        if (st && name[0] != '.' && std::time(nullptr) - st->st_mtime > k_bundle_age) remove_tree(bundles->fd(), name);
    }
}

}  // namespace lazyck::rt
