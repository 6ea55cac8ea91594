// Finds the sources of blobs in the library's bundle, and checks that they are fit to be compiled.
// Unpacks bundles whose sources were deployed as one archive into the cache, at the first compile
// that needs them.
#pragma once

#include <sys/stat.h>

#include <map>
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
struct LibraryPaths {
    std::string library;
    Strings roots;  // where the bundle may be
};

// Returns where the bundle may be, in the order of preference. `given` (LAZYCK_ROOT) excludes all
// others. Else the first is "lazyck" beside the library, which travels with it; the second is
// `baked` (from the manifest), which may be relative to the library's directory. The result is
// empty if the library's path is unknown and neither `given` nor an absolute `baked` is there.
Strings bundle_roots(const std::string& given, const std::string& baked, const std::string& library);

// Returns the path of the library of `manifest` in `directory`. Its file may have been renamed.
std::string library_in(const std::string& directory, const ManifestView& manifest);

// Removes unpacked bundles that were not used for a week from the cache `root`. Ignores failures.
void remove_unused_bundles(const Directory& root);

// The source of a blob, and the root of the bundle. `named` is the path in a command, where
// LAZYCK_BUNDLE_LINK is a link to the root.
struct SourceFile {
    std::string root, path, named;
    bool is_in_bundle;
};

// Returns the files and directories that a compile of `source`, that of `blob`, reads it and its
// headers from.
Strings places_of(const SourceFile& source, const BlobRow& blob);

class Sources {
 public:
    explicit Sources(const LibraryPaths& paths) : m_paths(paths) {}

    // Returns where the blob's source is. The sources of an archived bundle are unpacked into
    // `cache`. Throws CompileError.
    SourceFile find(const ManifestRow& at, Cache& cache);
    void check(const SourceFile& source, const ManifestRow& at);
    // Returns what the compiler read that changed since the build, or an empty string.
    std::string find_change(const SourceFile& source, const ManifestRow& at);

 private:
    std::string unpacked(const std::string& path, const ManifestRow& at, Cache& cache);
    std::string digest_of(const std::string& path);

    const LibraryPaths& m_paths;
    Contents m_contents;
    std::mutex m_mutex;
    // The digests of archives by path, with the status then.
    std::map<std::string, std::pair<struct stat, std::string>> m_digests;
    std::set<std::string> m_good;  // roots of unpacked bundles
};

}  // namespace lazyck::rt
