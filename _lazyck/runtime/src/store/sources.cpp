#include "store/sources.h"

#include <dirent.h>
#include <sys/stat.h>

#include "base/failure.h"
#include "lazyck_abi.h"
#include "platform/environment.h"
#include "platform/files.h"

namespace lazyck::rt {

namespace {

enum class Match { no_bundle, other_build, this_build };

// Returns whether the bundle at `root` is the library's, by what the bundle says of itself. Its
// files are checked before each compile.
Match match_of(const std::string& root, const ManifestView& manifest, const BlobRow& blob) {
    const std::string library = file_name_of(manifest.library());
    if (!is_file(root + "/" + blob.source) && !is_file(archive_path(root, library))) return Match::no_bundle;
    const bool has_digest = manifest.contents()[0] != '\0';
    if (has_digest && is_file(root + "/" + library + "/contents"))
        return Contents::is_own_list(root, manifest) ? Match::this_build : Match::other_build;
    const std::string path = root + "/" + library + "/manifest";
    MappedFile file;
    if (file.map(path) != 0) return Match::this_build;
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
void check_bundle(const Strings& roots, const std::string& library, const ManifestView& manifest, const BlobRow& blob) {
    const std::string name = file_name_of(manifest.library());
    std::string places;
    for (const std::string& root : roots) {
        struct stat st;
        const std::string place = root + "/" + name;
        if (stat(place.c_str(), &st) == 0) return;
        places += (places.empty() ? "'" : " nor '") + visible(place) + "'";
    }
    fail("lazyck: cannot compile blob '" + visible(blob.name) + "': the bundle of '" + visible(library) +
             "', which has its source, is not at " + places + "; copy lazyck/" + visible(name) +
             " of the build's install dir to " + visible(roots.front() + "/" + name) +
             ", or name the directory that holds " + visible(name) + " with " LAZYCK_ENV_ROOT,
         {blob.name, "", ""});
}

// Returns the root whose bundle is the library's own, or the first root if none has a bundle.
// Throws CompileError if there are only bundles of other builds: their sources must not be cached
// under this build's key.
std::string root_of_blob(const Strings& roots, const std::string& library, const ManifestView& manifest,
                         const BlobRow& blob) {
    if (roots.empty()) {
        fail("lazyck: cannot compile blob '" + visible(blob.name) + "': its bundle is beside the file of " +
                 visible(manifest.library()) +
                 ", whose place is unknown (without /proc it is known only if it was loaded by an absolute path);"
                 " name the directory that holds the bundle with " LAZYCK_ENV_ROOT,
             {blob.name, "", ""});
    }
    std::string other;
    for (const std::string& root : roots) {
        const Match match = match_of(root, manifest, blob);
        if (match == Match::this_build) return root;
        if (match == Match::other_build) other = root;
    }
    if (other.empty()) {
        check_bundle(roots, library, manifest, blob);
        return roots.front();  // the compile reports what is missing
    }
    fail("lazyck: cannot compile blob '" + visible(blob.name) + "': the bundle at '" + other +
             "' is of another build of " + manifest.library() + " than '" + library +
             "'; install the library again, or name its own bundle with " LAZYCK_ENV_ROOT,
         {blob.name, "", ""});
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
    const std::string exact = directory + "/" + file_name_of(manifest.soname());
    if (is_file(exact)) return exact;
    const std::unique_ptr<DIR, int (*)(DIR*)> listing(opendir(directory.c_str()), closedir);
    const std::string lead = manifest.library() + std::string(".so");
    std::string found;
    while (const dirent* const entry = listing ? readdir(listing.get()) : nullptr) {
        const std::string name = entry->d_name;
        if (name.compare(0, lead.size(), lead) != 0 || !is_file(directory + "/" + name)) continue;
        if (found.empty() || name < found) found = name;
    }
    return directory + "/" + (found.empty() ? file_name_of(manifest.soname()) : found);
}

SourceFile Sources::find(const ManifestView& manifest, const BlobRow& blob, Cache& cache) {
    check_stays_inside(blob);
    if (blob.source[0] == '/') return {m_places.roots.empty() ? "" : m_places.roots[0], blob.source, false};
    std::string root = root_of_blob(m_places.roots, m_places.library, manifest, blob);
    const std::string library = file_name_of(manifest.library());
    const std::string archive = archive_path(root, library);
    if (!is_file(root + "/" + blob.source) && is_file(archive)) {
        if (is_privileged()) check_way(blob, archive);
        // A bundle that was unpacked into a cache may have been removed in part, or torn by a power
        // cut. Later changes are detected at the compile, as in any bundle.
        const auto is_good = [&](const std::string& there) {
            return m_contents->find_fault(there, manifest, blob).empty();
        };
        root = m_archives->unpacked(archive, library, blob.source, cache, is_good);
    }
    return {root, root + "/" + blob.source, true};
}

void Sources::check(const SourceFile& source, const ManifestView& manifest, const BlobRow& blob) {
    const auto refuse = [&](const std::string& reason, const std::string& remedy) {
        fail("lazyck: cannot compile blob '" + visible(blob.name) + "': " + reason + "\n  " + remedy,
             {blob.name, "", ""});
    };
    if (!is_file(source.path))
        refuse("its source '" + source.path + "' is not there", LAZYCK_ENV_ROOT " names the library's bundle");
    if (is_privileged()) check_way(blob, source.path);
    const std::string fault = source.is_in_bundle ? m_contents->find_fault(source.root, manifest, blob) : "";
    if (!fault.empty()) {
        refuse("the bundle is not as it was when the library was built: " + fault,
               "the result would go into the cache under a key that it does not match; install the library again,"
               " or build it again with the change");
    }
}

std::string Sources::find_change(const SourceFile& source, const ManifestView& manifest, const BlobRow& blob) {
    return source.is_in_bundle ? m_contents->find_change(source.root, manifest, blob) : "";
}

void Sources::after_fork_in_child() {
    static_cast<void>(m_contents.release());
    static_cast<void>(m_archives.release());
    m_contents = std::make_unique<Contents>();
    m_archives = std::make_unique<Archives>();
}

}  // namespace lazyck::rt
