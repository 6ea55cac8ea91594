// An archive of sources is <root>/<library>/sources.tar.gz, written by lazyck/postbuild/bundle.py.
// Its members are "<library>/tree/..." and, as the last one, "<library>/contents". Hence an
// unpacked bundle that has `contents` is complete. It is unpacked at <cache>/.bundles/<32 digits of
// its SHA-256>; that directory's modification time is the time of the last use.
#include "store/sources.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <functional>

#include "base/failure.h"
#include "base/hash.h"
#include "lazyck_abi.h"
#include "platform/environment.h"
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

// Returns whether the bundle at `root` is complete, and notes that it was used. Throws CompileError
// if other users could have put it there.
bool is_whole(const std::string& root, const std::string& library) {
    if (!is_file(root + "/" + library + "/contents")) return false;
    const UniqueFd directory = open_trusted_directory(root, k_depth_of_bundles);
    futimens(directory.get(), nullptr);
    return true;
}

// Returns why a small file cannot be written in `directory`, as an errno value, or 0 if it can. A
// full disk or a quota is a fault of the directory, so another one may do. A damaged archive is
// not.
int find_write_error(int directory) {
    const UniqueFd file = open_at(directory, "room", O_WRONLY | O_CREAT | O_TRUNC);
    if (file && write_all(file.get(), std::string(k_room, ' '))) return 0;
    return errno;
}

[[noreturn]] void fail_for(const BlobRow& blob, const std::string& reason) {
    fail("lazyck: cannot compile blob '" + visible(blob.name) + "': " + reason, {blob.name, "", ""});
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
    command.environment = {"PATH=" + search_path(environment("PATH")), "LC_ALL=C"};
    command.directory = into;
    command.input = file.get();
    command.output = log.get();
    command.timeout_seconds = k_longest_unpacking;
    command.beat = [&](double seconds) {
        log_message(Level::info, "still unpacking '" + archive + "' (" + seconds_text(seconds) + ")",
                    {"unpack", {}, seconds});
    };
    log_message(Level::debug, "unpacking '" + archive + "'", {"unpack"});
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

// Unpacks `archive` to `root`. `is_made` returns whether another process was first, which can
// happen where the file system has no locks, or where this process took long. What the other
// process unpacked is then left alone, because others may already compile from it.
void unpack(const std::string& archive, const std::string& library, const std::string& root, Cache& cache,
            const std::function<bool()>& is_made) {
    const StagingDirectory staging(owned_prefix(cache.root() + "/" LAZYCK_CACHE_STAGING "/bundle"));
    const char* const name = "unpacked";
    UniqueFd into;
    if (mkdirat(staging.fd(), name, 0700) == 0) into = open_at(staging.fd(), name, O_RDONLY | O_DIRECTORY);
    if (!into) fail_system("cannot unpack '" + archive + "'", errno);
    run_tar(archive, staging, into.get());
    if (!is_file_in(into.get(), library + "/contents"))
        fail("lazyck: '" + archive + "' is damaged: it has no contents; install the library again");
    const UniqueFd bundles = open_trusted_directory(directory_of(root), k_depth_of_bundles - 1);
    const std::string own = file_name_of(root);
    if (is_made()) return;
    remove_tree(bundles.get(), own);
    if (renameat(staging.fd(), name, bundles.get(), own.c_str()) == 0) return;
    if ((errno != ENOTEMPTY && errno != EEXIST) || !is_whole(root, library)) {
        fail_system("cannot put the unpacked bundle at '" + root + "'", errno);
    }
}

// Returns where the archive of `library`'s part of the bundle at `root` would be.
std::string archive_path(const std::string& root, const std::string& library) {
    return root + "/" + library + "/" LAZYCK_BUNDLE_ARCHIVE;
}

enum class Match { no_bundle, other_build, this_build };

// Returns whether the bundle at `root` is the library's, by what the bundle says of itself. Its
// files are checked before each compile.
Match match_of(const std::string& root, const ManifestRow& at) {
    const ManifestView& manifest = at.manifest;
    const BlobRow blob = at.blob();
    const std::string library = file_name_of(manifest.library());
    if (!is_file(root + "/" + blob.source) && !is_file(archive_path(root, library))) return Match::no_bundle;
    const bool has_digest = manifest.contents()[0] != '\0';
    if (has_digest && is_file(root + "/" + library + "/contents"))
        return Contents::is_own_list(root, manifest) ? Match::this_build : Match::other_build;
    const std::string path = root + "/" + library + "/manifest";
    MappedFile file;
    if (file.read(path) != 0) return Match::this_build;
    const ManifestView there(file.data(), file.size(), path);
    if (has_digest)
        return std::string_view(there.contents()) == manifest.contents() ? Match::this_build : Match::other_build;
    for (std::uint32_t i = 0; i < there.blob_count(); ++i) {
        const BlobRow row = there.blob(i);
        if (std::string_view(row.name) != blob.name) continue;
        return std::string_view(row.digest) == blob.digest ? Match::this_build : Match::other_build;
    }
    return Match::other_build;
}

// Throws CompileError if none of `roots` has any part of the library's bundle, which means that the
// library was copied without it.
void check_bundle(const LibraryPaths& paths, const ManifestRow& at) {
    const std::string name = file_name_of(at.manifest.library());
    const BlobRow blob = at.blob();
    std::string looked_at;
    for (const std::string& root : paths.roots) {
        struct stat st;
        const std::string path = root + "/" + name;
        if (stat(path.c_str(), &st) == 0) return;
        looked_at += (looked_at.empty() ? "'" : " nor '") + visible(path) + "'";
    }
    fail_for(blob, "the bundle of '" + visible(paths.library) + "', which has its source, is not at " + looked_at +
                       "; copy lazyck/" + visible(name) + " of the build's install dir to " +
                       visible(paths.roots.front() + "/" + name) + ", or name the directory that holds " +
                       visible(name) + " with " LAZYCK_ENV_ROOT);
}

// Returns the root whose bundle is the library's own, or the first root if none has a bundle.
// Throws CompileError if there are only bundles of other builds: their sources must not be cached
// under this build's key.
std::string root_of_blob(const LibraryPaths& paths, const ManifestRow& at) {
    const BlobRow blob = at.blob();
    if (paths.roots.empty()) {
        fail_for(blob,
                 "its bundle is beside the file of " + visible(at.manifest.library()) +
                     ", whose place is unknown (without /proc it is known only if it was loaded by an absolute path);"
                     " name the directory that holds the bundle with " LAZYCK_ENV_ROOT);
    }
    std::string other;
    for (const std::string& root : paths.roots) {
        const Match match = match_of(root, at);
        if (match == Match::this_build) return root;
        if (match == Match::other_build) other = root;
    }
    if (other.empty()) {
        check_bundle(paths, at);
        return paths.roots.front();  // the compile reports what is missing
    }
    fail_for(blob, "the bundle at '" + other + "' is of another build of " + at.manifest.library() + " than '" +
                       paths.library + "'; install the library again, or name its own bundle with " LAZYCK_ENV_ROOT);
}

// Checks that the source's path does not lead out of the bundle.
void check_stays_inside(const BlobRow& blob) {
    for (const std::string& part : split(blob.source, "/")) {
        if (part != "..") continue;
        fail("lazyck: blob '" + visible(blob.name) + "': its manifest names the source '" + visible(blob.source) +
                 "', which leads out of the bundle; the manifest is not lazyck's: install the library again",
             {blob.name, "", ""});
    }
}

// Refuses a source that others could have written. A privileged program can be started through a
// link beside a bundle that its caller wrote.
void check_way(const BlobRow& blob, const std::string& path) {
    const std::string stranger = stranger_on_way(path);
    if (stranger.empty()) return;
    fail("lazyck: refusing to compile blob '" + visible(blob.name) + "' in a privileged program from '" + path +
             "': " + stranger + "; install the bundle as root",
         {blob.name, "", ""});
}

}  // namespace

Strings bundle_roots(const std::string& given, const std::string& baked, const std::string& library) {
    if (!given.empty()) return {given};
    if (library.empty()) return baked.empty() || baked[0] != '/' ? Strings() : Strings{baked};
    const std::string directory = directory_of(library);
    Strings roots = {directory + "/lazyck"};
    if (!baked.empty()) roots.push_back(baked[0] == '/' ? baked : directory + "/" + baked);
    return roots;
}

std::string library_in(const std::string& directory, const ManifestView& manifest) {
    const std::string exact = directory + "/" + file_name_of(manifest.file_name());
    if (is_file(exact)) return exact;
    const UniqueFd listing = open_file(directory, O_RDONLY | O_DIRECTORY);
    const std::string lead = manifest.library() + std::string(".so");
    std::string found;
    for (const std::string& name : listing ? names_in(listing.get()) : Strings()) {
        if (name.compare(0, lead.size(), lead) != 0 || !is_file(directory + "/" + name)) continue;
        if (found.empty() || name < found) found = name;
    }
    return directory + "/" + (found.empty() ? file_name_of(manifest.file_name()) : found);
}

// Returns the root of a bundle in `cache` that has the contents of the archive at `path`. The
// archive is unpacked if that bundle is missing, if it lacks the blob's source, or if its contents
// changed. A bundle that was found good is not checked again in this process. Needs tar and gzip.
std::string Sources::unpacked(const std::string& path, const ManifestRow& at, Cache& cache) {
    const std::string library = file_name_of(at.manifest.library()), digest = digest_of(path);
    const BlobRow blob = at.blob();
    const std::string root = cache.make_own_directory(LAZYCK_CACHE_BUNDLES) + "/" + digest;
    const auto is_known_good = [&] {
        const std::lock_guard<std::mutex> guard(m_mutex);
        return m_good.count(root) != 0;
    };
    // A bundle that was unpacked into a cache may have been removed in part, or torn by a power
    // cut. Later changes are detected at the compile, as in any bundle.
    const auto is_made = [&] {
        return is_whole(root, library) && is_file(root + "/" + blob.source) &&
               (is_known_good() || m_contents.find_fault(root, at.manifest, blob).empty());
    };
    if (!is_made()) {
        const BlobLock lock(cache.root() + "/" LAZYCK_CACHE_LOCKS "/bundle-" + digest + ".lock",
                            {"the bundle of " + visible(library), library, "", "", ""}, k_patience, is_made);
        if (!is_made()) unpack(path, library, root, cache, is_made);
    }
    const std::lock_guard<std::mutex> guard(m_mutex);
    m_good.insert(root);
    return root;
}

std::string Sources::digest_of(const std::string& path) {
    struct stat st;
    if (stat(path.c_str(), &st) != 0) fail_to_read(path, errno);
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        const auto known = m_digests.find(path);
        if (known != m_digests.end() && is_same_file(known->second.first, st)) return known->second.second;
    }
    MappedFile file;
    if (const int error = file.read(path, true)) fail_to_read(path, error);
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

Strings places_of(const SourceFile& source, const BlobRow& blob) {
    if (!source.is_in_bundle) return {directory_of(source.path), source.root};
    const std::string place = blob.source;
    return {source.root + "/" + place.substr(0, place.find('/'))};
}

SourceFile Sources::find(const ManifestRow& at, Cache& cache) {
    const BlobRow blob = at.blob();
    check_stays_inside(blob);
    if (blob.source[0] == '/') return {m_paths.roots.empty() ? "" : m_paths.roots[0], blob.source, blob.source, false};
    std::string root = root_of_blob(m_paths, at);
    const std::string archive = archive_path(root, file_name_of(at.manifest.library()));
    if (!is_file(root + "/" + blob.source) && is_file(archive)) {
        if (is_privileged()) check_way(blob, archive);
        root = unpacked(archive, at, cache);
    }
    return {root, root + "/" + blob.source, std::string(LAZYCK_BUNDLE_LINK "/") + blob.source, true};
}

void Sources::check(const SourceFile& source, const ManifestRow& at) {
    const BlobRow blob = at.blob();
    if (!is_file(source.path)) {
        fail_for(blob,
                 "its source '" + source.path + "' is not there\n  " LAZYCK_ENV_ROOT " names the library's bundle");
    }
    if (is_privileged()) check_way(blob, source.path);
    const std::string fault = source.is_in_bundle ? m_contents.find_fault(source.root, at.manifest, blob) : "";
    if (fault.empty()) return;
    fail_for(blob, "the bundle is not as it was when the library was built: " + fault +
                       "\n  the result would go into the cache under a key that it does not match; install the library"
                       " again, or build it again with the change");
}

std::string Sources::find_change(const SourceFile& source, const ManifestRow& at) {
    return source.is_in_bundle ? m_contents.find_fault(source.root, at.manifest, at.blob(), true) : "";
}

}  // namespace lazyck::rt
