// What the environment says, read once and typed.
#pragma once

#include <string>

#include "environment.h"
#include "lazyck_abi.h"
#include "text.h"

namespace lazyck::rt {

enum class ByKernelChoice { by_cost, always, never };

struct Config {
    std::string cache_dir;  // "": the default below the user's cache directory
    std::string caches;     // that directory, where the user's caches are by default; "": no home is known
    std::string root;       // "": the manifest's
    std::string manifest;   // "": none
    std::string name;       // "": the manifest's
    bool is_jit_disabled = false;
    ByKernelChoice by_kernel = ByKernelChoice::by_cost;
    bool has_preambles = true;       // precompiled ones are made and taken
    bool has_text_keys = true;       // entries are found by the text that they were made of, too
    bool has_all_text_keys = false;  // also where making the text costs more than it saves, mostly
    Strings archs;                   // empty: ask the GPU
    unsigned jobs = 1;               // compilers at a time
    bool has_remote = false;         // whether there are remote caches; which, their helper reads
    std::string remote_helper;       // a path, or a name to look for in PATH
    Strings launcher;                // words that go in front of a compiler's command
    std::string salt;                // the user's own part of the key
    double lock_timeout = -1;        // seconds to wait for another process's compile; negative: by what compiles took
    double compile_timeout = 3600;   // seconds; 0: none
    Strings cache_path;              // caches to look in after the user's own
    std::string record;              // profile to append to; "": none
    std::string prefetch;            // profile to make ready; "": none
    std::string speculate;           // profile to learn from what follows what; "": none
    std::string trace;               // file for trace events; "": none
    long mem_per_job_kib = -1;       // of one compile; negative: by what compiles took; 0: memory is not looked at
    // Size that the user's own cache is trimmed to; 0: never.
    long cache_max_kib = LAZYCK_DEFAULT_CACHE_MAX_KIB;
};

// Warns of variables that lazyck does not have, and of what was not read of the user's file.
void warn_of_environment();

// Throws CompileError that names the variable which makes no sense. An empty variable counts as not set.
Config read_config();

// Whether a failure should end the process (LAZYCK_ON_ERROR=abort). A bad value reads as no.
bool aborts_on_error();

// Archs in `text` (separated by ; , or blanks) in one spelling: "gfx942:xnack-" is gfx942, "sm_90" and "9.0" are 90.
// Throws CompileError that names `variable`.
Strings parse_archs(const std::string& text, const char* variable);

// `text` as a cache's root: absolute, no link hidden by a trailing '/' or '.'. Throws CompileError, which begins with
// `what`, where it is relative or has '..'.
std::string cache_root(const std::string& text, const char* what);

// The cache of `name` by default: below `caches`, as Config has it. Throws CompileError.
std::string default_cache_dir(const std::string& caches, const std::string& name);

}  // namespace lazyck::rt
