// Compiles one blob into an entry: stage, compile, link, check, seal, publish.
#pragma once

#include <functional>
#include <string>

#include "base/text.h"
#include "bundle/recipe.h"
#include "cache/cache.h"
#include "platform/files.h"
#include "platform/messages.h"
#include "platform/process.h"

namespace lazyck::rt {

constexpr char k_object[] = "blob.o";  // output of a compile step that a link step follows

struct CompileRequest {
    Subject subject;  // names the blob in messages
    RecipeRow recipe;
    // The root is that of the bundle, or empty if there is none. The source is named as where
    // LAZYCK_BUNDLE_LINK is a link to the root. Object, output and toolchain are not read.
    RecipeValues values;
    std::string bundle;           // the SHA-256 of the bundle's list of files, or empty
    bool has_other_way = false;   // a failure is no error yet: something else is compiled then
    Strings text;                 // put before the compile step, to only ask for what it makes; empty: do not ask
    Strings beside;               // put before the compile step, which then does two things at the same time
    Strings faster;               // put behind it; tried together with `beside` first, then alone, then left out
    Strings symbols;              // the entry must define these
    Strings private_names;        // names by which the entry calls what its library hides
    double timeout_seconds = 0;   // of each step; 0: none
    double expected_seconds = 0;  // for messages; 0: not known
    std::function<void(pid_t)> started = [](pid_t) {};                  // gets the process of each compiler
    std::function<void(const Outcome&)> ended = [](const Outcome&) {};  // gets the way it ended
    std::function<void()> refused_faster = [] {};                       // called if the compiler fails with `faster`
    std::function<void(const std::string&)> told_cost = [](const std::string&) {};  // gets a line of `lazyck-unit`
    // Finds an entry that was made of a text, by its key (see texts.h). Returns it open, whole and
    // with these symbols, or an empty descriptor. Without this function, nothing is asked.
    std::function<UniqueFd(const EntryKey&)> find_text;
    std::function<std::string()> find_change;  // what the compiler read that changed since the build, or ""
};

struct Made {
    UniqueFd entry;              // open for reading
    EntryKey text;               // the text it was made of; `is_text` is false if that is not known
    bool is_taken_over = false;  // it was made of that text before and copied, not compiled
};

// Compiles the blob, and leaves the entry at its place in the cache with the log beside it. The log
// is also left on failure. The caller must hold the blob's lock. Throws CompileError.
Made compile_entry(const CompileRequest& request, Cache& cache, const EntryKey& key);

}  // namespace lazyck::rt
