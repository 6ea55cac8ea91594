// Tells which compiler this machine has for a recipe, in the name under which keys have it. The
// build names its own likewise (lazyck/toolchains/identity.py), so that a compiler or a system's
// header that is another one than the build's leads to other keys.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "base/text.h"
#include "bundle/manifest_view.h"
#include "cache/cache.h"
#include "store/sources.h"

namespace lazyck::rt {

class Compilers {
 public:
    Compilers(Sources& sources, unsigned jobs) : m_sources(sources), m_jobs(jobs) {}

    // Returns the name of what compiles the row on this machine. It is that of the recipe if the
    // compiler, its programs and the headers that the build read are the same here. The compiler is
    // asked once in a process, and not at all if a record in `cache` knows its files by their sizes
    // and times. Throws CompileError if it cannot be asked.
    std::string name(const ManifestRow& at, Cache& cache);

    // Returns what `name` returned for such a row, or an empty string if it was not called or
    // failed.
    std::string known(const ManifestRow& at);

 private:
    std::string find_name(const ManifestRow& at, Cache& cache);

    Sources& m_sources;
    const unsigned m_jobs;
    std::mutex m_mutex;
    std::map<std::uint32_t, std::string> m_names;  // by recipe
};

// Returns the name that a compiler's `--version` output gives, with what tells its programs from
// others, such as "gcc12.2.0-8c1f0a3b5d7e".
std::string compiler_name(std::string_view version_text, const Strings& marks);

}  // namespace lazyck::rt
