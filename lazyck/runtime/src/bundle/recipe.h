// Turns the words of a recipe, which contain placeholders, into the commands that compile one blob.
#pragma once

#include <string>

#include "base/text.h"
#include "bundle/manifest_view.h"

namespace lazyck::rt {

struct RecipeValues {
    std::string source, object, output, root, library, soname, toolchain;
    std::string kernel;  // a line of its host unit's table (see BlobRow)
    std::string name;    // what makes names unique that the compiler invents
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

// Returns this process's environment with the changes of the plan. What a compiler copies into its
// output, the directory's name and the time zone, is equal everywhere.
Strings plan_environment(const CompilePlan& plan);

// Returns a shell line that repeats both steps in a new directory, which has a link to the bundle
// at `root` as in a compile. Without a root, there is no link.
std::string reproducer(const CompilePlan& plan, const std::string& root);

// Returns the toolchain's home: the directory that the build used, or the one that a variable of
// the recipe names. Throws CompileError if neither exists.
std::string find_toolchain(const RecipeRow& recipe);

}  // namespace lazyck::rt
