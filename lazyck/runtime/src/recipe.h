// Turns the words of a recipe, which contain placeholders, into the commands that compile one blob.
#pragma once

#include <string>

#include "manifest_view.h"
#include "text.h"

namespace lazyck::rt {

// Holds the values of the placeholders.
struct RecipeValues {
    std::string source;
    std::string object;
    std::string output;
    std::string root;
    std::string library;
    std::string toolchain;
    std::string kernel;  // a line of its host unit's table (see BlobRow)
    Strings archs;
    Strings launcher;  // in front of the compile step
};

struct CompilePlan {
    Strings compile;
    Strings link;   // empty: the compile step makes the library
    Strings set;    // NAME=value
    Strings unset;  // names
};

CompilePlan make_plan(const RecipeRow& recipe, const RecipeValues& values);

// Returns this process's environment with the changes of the plan.
Strings plan_environment(const CompilePlan& plan);

// Returns a shell line that repeats both steps in a new directory.
std::string reproducer(const CompilePlan& plan);

// Returns the toolchain's home: the directory that the build used, or the one that a variable of
// the recipe names. Throws CompileError if neither exists.
std::string find_toolchain(const RecipeRow& recipe);

}  // namespace lazyck::rt
