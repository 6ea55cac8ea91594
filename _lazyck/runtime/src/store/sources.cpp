#include "store/sources.h"

#include "base/failure.h"
#include "cache/places.h"
#include "lazyck_abi.h"
#include "platform/environment.h"
#include "platform/files.h"

namespace lazyck::rt {

namespace {

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
