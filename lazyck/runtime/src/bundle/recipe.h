// Turns the words of a recipe, which contain placeholders, into the commands that compile one blob.
#pragma once

#include <string>

#include "base/text.h"
#include "bundle/manifest_view.h"

namespace lazyck::rt {

struct RecipeValues {
    std::string source, object, output, root, toolchain;
    std::string kernel;  // a line of its host unit's table (see BlobRow)
    std::string name;    // what makes names unique that the compiler invents
    Strings archs;
    Strings launcher;  // in front of the compile step
};

struct CompilePlan {
    Strings compile;
    Strings link;  // empty: the compile step makes the library
    Strings set;   // NAME=value
};

CompilePlan make_plan(const RecipeRow& recipe, const RecipeValues& values);

// Returns the words of `recipe` that start its compiler, with placeholders.
Strings compiler_of(const RecipeRow& recipe);

// Returns the whole environment of a command of the plan: the variables that the build recorded,
// and lazyck's own, so that equal commands make equal files in every process. What a compiler
// copies into its output, the directory's name and the time zone, is equal everywhere. Programs are
// found in the directories of `path`, a PATH.
Strings plan_environment(const CompilePlan& plan, const std::string& path);

// Returns the environment of a step behind `launcher`, which has files and settings of its own.
Strings launcher_environment(const CompilePlan& plan, const Strings& launcher);

// Returns a shell line that repeats both steps in a new directory, which has a link to the bundle
// at `root` as in a compile. Without a root, there is no link.
std::string reproducer(const CompilePlan& plan, const std::string& root);

// Returns the toolchain's home: the directory that the build used, or the one that a variable of
// the recipe names. Throws CompileError if neither exists.
std::string find_toolchain(const RecipeRow& recipe);

}  // namespace lazyck::rt
