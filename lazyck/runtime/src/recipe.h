// Turns a recipe's words, which hold placeholders, into the commands that compile one blob.
#pragma once

#include <string>

#include "manifest_view.h"
#include "text.h"

namespace lazyck::rt {

// What the placeholders stand for.
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
    Strings link;   // none: the compile step makes the library
    Strings set;    // NAME=value
    Strings unset;  // names
};

CompilePlan make_plan(const RecipeRow& recipe, const RecipeValues& values);

// The environment of this process as the plan wants it.
Strings plan_environment(const CompilePlan& plan);

// A shell line that repeats both steps in a new directory.
std::string reproducer(const CompilePlan& plan);

// The toolchain's home: where the build had it, or where one of the recipe's variables says. Throws CompileError.
std::string find_toolchain(const RecipeRow& recipe);

}  // namespace lazyck::rt
