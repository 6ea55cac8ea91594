// Makes one entry as the action of a compile service, on a machine that has nothing of lazyck but
// `lazyck-rt` and the library's bundle; and runs other commands as such a compile is run.
#pragma once

#include <string>

#include "bundle/manifest_view.h"
#include "platform/config.h"

namespace lazyck::rt {

// Lets recipes whose own toolchain is not on this machine find the one at `path`. This must come
// before the first look at the environment, which is kept.
void offer_toolchain(const ManifestView& manifest, const std::string& path);

// Runs the command `argv` here as a compile of `blob` would be run: in its environment, and limited
// in what it may read. `root` is the root of the bundle. Returns the command's exit status. Throws
// CompileError if it does not start or does not end by itself.
int run_limited(const ManifestView& manifest, const BlobRow& blob, const std::string& root, const Strings& argv);

// A cache for one action, below the working directory. What the action leaves is beside it, in the
// directory `made`: `entry`, `log`, and `cost`, which is "SECONDS KIB".
class ActionCache {
 public:
    // Makes the cache, and lets `config` compile into it, whatever the environment says about
    // caches. Throws CompileError.
    explicit ActionCache(Config& config);
    ActionCache(const ActionCache&) = delete;
    ActionCache& operator=(const ActionCache&) = delete;
    ~ActionCache();

    // Puts what there is of an entry at `path` in the cache, its log and its cost into `made`.
    // Throws CompileError.
    void deliver(const std::string& path, double seconds, long peak_kib) const;

 private:
    std::string m_root;
};

}  // namespace lazyck::rt
