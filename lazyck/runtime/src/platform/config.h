// The settings from the environment, read once and typed.
#pragma once

#include <string>

#include "base/text.h"
#include "lazyck_abi.h"
#include "platform/environment.h"

namespace lazyck::rt {

// What applies to a call that has to compile. `warn` and `error` apply once warm-up is over.
enum class Jit { on, warn, error, off };

enum class ByKernelChoice { by_cost, always, never };

struct Config {
    std::string cache_dir;  // empty: the default below the user's cache directory
    std::string caches;     // the user's cache directory; empty: no home is known
    std::string root;       // empty: the manifest's
    std::string name;       // empty: the manifest's
    Jit jit = Jit::on;
    ByKernelChoice by_kernel = ByKernelChoice::by_cost;
    bool has_preambles = true;       // precompiled preambles are made and used
    bool has_text_keys = true;       // entries are also found by the text that they were made of
    bool has_all_text_keys = false;  // also where making the text usually costs more than it saves
    Strings archs;                   // empty: ask the GPU
    unsigned jobs = 1;               // number of compilers at a time
    bool has_remote = false;         // there are remote caches; their helper reads which
    std::string compile_service;     // that is asked to compile what is missing; empty: none
    std::string remote_helper;       // a path, or a name to look for in PATH
    Strings launcher;                // words that go in front of a compiler's command
    std::string salt;                // the user's own part of the key
    double lock_timeout = -1;        // seconds to wait for another process's compile; negative: by earlier compiles
    double compile_timeout = 3600;   // seconds; 0: none
    Strings cache_path;              // caches to look in after the user's own
    std::string profile;             // profile to append to; empty: none
    std::string prefetch;            // profile to make ready; empty: none
    std::string trace;               // file for trace events; empty: none
    long mem_per_job_kib = -1;       // of one compile; negative: by earlier compiles; 0: memory is not checked
    // Size that the user's own cache is trimmed to; 0: never.
    long cache_max_kib = LAZYCK_DEFAULT_CACHE_MAX_KIB;
};

// Reads the settings. An empty variable counts as not set. Throws CompileError that names the first
// variable with a value that makes no sense.
Config read_config();

// Returns whether a failure should end the process (LAZYCK_ON_ERROR=abort). A bad value counts as
// no.
bool aborts_on_error();

// Returns the archs in `text` (separated by ; , or blanks) in one spelling: "gfx942:xnack-" is
// gfx942, "sm_90" and "9.0" are 90. Throws CompileError that names `variable`.
Strings parse_archs(const std::string& text, const char* variable);

// Returns `text` as a cache's root: absolute, without a trailing '/' or '.' that would hide a link.
// If `text` is relative or has '..', throws CompileError whose message begins with `what`.
std::string cache_root(const std::string& text, const char* what);

// Returns the default cache of `name`, below `caches` (see Config). Throws CompileError.
std::string default_cache_dir(const std::string& caches, const std::string& name);

}  // namespace lazyck::rt
