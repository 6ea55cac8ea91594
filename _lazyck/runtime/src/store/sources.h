// Finds the sources of blobs in the library's bundle, and checks that they are fit to be compiled.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "bundle/contents.h"
#include "bundle/manifest_view.h"
#include "cache/cache.h"
#include "cache/directory.h"

namespace lazyck::rt {

// Tells where a lazy library and its bundle are.
struct Places {
    std::string library;
    Strings roots;  // where the bundle may be
};

// Returns where the bundle may be, in the order of preference. `given` (LAZYCK_ROOT) excludes all
// others. Else the first is "lazyck" beside the library, which travels with it; the second is
// `baked` (from the manifest), which may be relative to the library's directory. The result is
// empty if the library's path is unknown and neither `given` nor an absolute `baked` is there.
Strings bundle_roots(const std::string& given, const std::string& baked, const std::string& library);

// Returns the path of the library of `manifest` in `directory`. The file name need not be the
// soname.
std::string library_in(const std::string& directory, const ManifestView& manifest);

// Unpacks bundles whose sources were deployed as one archive into the cache, at the first compile
// that needs them.
class Archives {
 public:
    // Returns the root of a bundle in `cache` that has the contents of the archive at `path`. The
    // archive is unpacked if that bundle is missing, if it lacks the file `source`, or if `is_good`
    // returns that its contents changed. A bundle that was found good is not checked again in this
    // process. Needs tar and gzip. Throws CompileError.
    std::string unpacked(const std::string& path, const std::string& library, const std::string& source, Cache& cache,
                         const std::function<bool(const std::string& root)>& is_good);

 private:
    std::string digest_of(const std::string& path);
    bool is_known_good(const std::string& root);

    std::mutex m_mutex;
    std::map<std::string, std::pair<struct stat, std::string>> m_digests;  // by path, with the status then
    std::set<std::string> m_good;                                          // roots of bundles
};

// Removes unpacked bundles that were not used for a week from the cache `root`. Ignores failures.
void remove_unused_bundles(const Directory& root);

// The source of a blob, and the root of the bundle.
struct SourceFile {
    std::string root, path;
    bool is_in_bundle;
};

class Sources {
 public:
    explicit Sources(const Places& places) : m_places(places) {}

    // Returns where the blob's source is. The sources of an archived bundle are unpacked into
    // `cache`. Throws CompileError.
    SourceFile find(const ManifestView& manifest, const BlobRow& blob, Cache& cache);
    // Throws CompileError unless the source is fit to be compiled.
    void check(const SourceFile& source, const ManifestView& manifest, const BlobRow& blob);
    // Returns what the compiler read that changed since the build, or an empty string.
    std::string find_change(const SourceFile& source, const ManifestView& manifest, const BlobRow& blob);

    // Leaks what is known of the bundle: its locks may be held by threads that the child does not
    // have.
    void after_fork_in_child();

 private:
    const Places& m_places;
    std::unique_ptr<Contents> m_contents = std::make_unique<Contents>();
    std::unique_ptr<Archives> m_archives = std::make_unique<Archives>();
};

}  // namespace lazyck::rt
