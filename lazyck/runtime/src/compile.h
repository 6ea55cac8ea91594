// Compiles one blob into an entry: stage, compile, link, check, seal, publish.
#pragma once

#include <functional>
#include <string>

#include "cache.h"
#include "files.h"
#include "messages.h"
#include "process.h"
#include "recipe.h"
#include "text.h"

namespace lazyck::rt {

constexpr char k_object[] = "blob.o";  // what a compile step makes that a link step follows

struct CompileRequest {
    Subject subject;  // the blob, for messages
    RecipeRow recipe;
    std::string source;          // absolute
    std::string root;            // the bundle's
    std::string library;         // the lazy library's path
    std::string kernel;          // that alone is wanted of the source, as RecipeValues has it
    bool has_other_way = false;  // a failure is no error yet: something else will be compiled then
    Strings archs;
    Strings launcher;
    Strings text;                 // words before the compile step, which only ask for what that makes; none: not asked
    Strings beside;               // words before the compile step, by which it does two things at the same time
    Strings faster;               // words behind it; with both it is tried first, then with these, then without
    Strings symbols;              // that the entry must define
    Strings private_names;        // by which it calls what its library hides
    double timeout_seconds = 0;   // of each step; 0: none
    double expected_seconds = 0;  // for messages; 0: not known
    std::function<void(pid_t)> started = [](pid_t) {};                  // hears of each compiler's process
    std::function<void(const Outcome&)> ended = [](const Outcome&) {};  // and of how it ended
    std::function<void()> refused_faster = [] {};  // hears that the compiler fails with those words
    std::function<void(const std::string&)> told_cost = [](const std::string&) {};  // hears what `lazyck-unit` says
    // Finds an entry that was made of a text, by its key (see texts.h): open, whole and with these symbols, or empty.
    // None: nothing is asked.
    std::function<UniqueFd(const EntryKey&)> find_text;
    std::function<std::string()> find_change;  // in what the compiler read, since the library was built; "" if none
};

struct Made {
    UniqueFd entry;              // open
    EntryKey text;               // of what it was made; `is_text` where that is known
    bool is_taken_over = false;  // it was made of that text before, and not compiled
};

// Leaves the entry at its place in the cache, and the log beside it, also on failure. The caller holds the blob's lock.
// Throws CompileError.
Made compile_entry(const CompileRequest& request, Cache& cache, const EntryKey& key);

}  // namespace lazyck::rt
