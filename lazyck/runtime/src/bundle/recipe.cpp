#include "bundle/recipe.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "base/failure.h"
#include "lazyck_abi.h"
#include "platform/environment.h"
#include "platform/files.h"

namespace lazyck::rt {

namespace {

std::string expand(std::string_view word,
                   std::initializer_list<std::pair<std::string_view, std::string_view>> replacements) {
    std::string out;
    while (!word.empty()) {
        const auto begins = [&](const auto& each) { return word.rfind(each.first, 0) == 0; };
        const auto* const found = std::find_if(replacements.begin(), replacements.end(), begins);
        if (found == replacements.end()) {
            out += word[0];
            word.remove_prefix(1);
        } else {
            out += found->second;
            word.remove_prefix(found->first.size());
        }
    }
    return out;
}

Strings expand_step(const Strings& words, const std::string& output, const RecipeRow& recipe, const RecipeValues& v) {
    Strings out;
    for (const std::string& word : words) {
        if (word == LAZYCK_PH_ARCHS) {
            for (const std::string& arch : v.archs) {
                const std::size_t end = arch.find(LAZYCK_ARCH_FROM_PTX);
                const std::string of_ptx =
                    end == std::string::npos ? arch : arch.substr(end + std::strlen(LAZYCK_ARCH_FROM_PTX));
                const std::string real = arch.substr(0, end);
                for (const std::string& flag : recipe.arch_flags)
                    out.push_back(expand(flag, {{LAZYCK_PH_ARCH, real}, {LAZYCK_PH_VIRTUAL, of_ptx}}));
            }
            continue;
        }
        out.push_back(expand(word, {{LAZYCK_PH_SOURCE, v.source},
                                    {LAZYCK_PH_OUTPUT, output},
                                    {LAZYCK_PH_INPUT, v.object},
                                    {LAZYCK_PH_ROOT, v.root},
                                    {LAZYCK_PH_KERNEL, v.kernel},
                                    {LAZYCK_PH_NAME, v.name},
                                    {LAZYCK_PH_TOOLCHAIN, v.toolchain}}));
    }
    return out;
}

bool sets_one_of(const std::string& assignment, const Strings& others) {
    const auto name_of = [](const std::string& each) { return each.substr(0, each.find('=')); };
    const auto is_alike = [&](const std::string& other) { return name_of(other) == name_of(assignment); };
    return std::any_of(others.begin(), others.end(), is_alike);
}

}  // namespace

CompilePlan make_plan(const RecipeRow& recipe, const RecipeValues& values) {
    CompilePlan plan;
    const bool has_link = !recipe.link.empty();
    plan.compile = expand_step(recipe.compile, has_link ? values.object : values.output, recipe, values);
    // The link step gets no launcher: launchers cache or distribute the compile of one source into
    // an object.
    if (has_link) plan.compile.insert(plan.compile.begin(), values.launcher.begin(), values.launcher.end());
    plan.link = expand_step(recipe.link, values.output, recipe, values);
    const Strings env = expand_step(recipe.env, values.output, recipe, values);
    for (std::size_t i = 0; i + 1 < env.size(); i += 2) plan.set.push_back(env[i] + "=" + env[i + 1]);
    return plan;
}

Strings compiler_of(const RecipeRow& recipe) {
    const Strings& words = recipe.compile;
    auto begin = words.begin();
    // lazyck-unit, a program of the bundle, is given the compiler behind `--`.
    if (!words.empty() && words[0].rfind(LAZYCK_PH_ROOT "/", 0) == 0) {
        begin = std::find(words.begin(), words.end(), "--");
        if (begin != words.end()) ++begin;
    }
    auto end = std::find(begin, words.end(), LAZYCK_PH_ARCHS);
    if (end == words.end() || end == begin) end = begin == words.end() ? begin : begin + 1;
    return {begin, end};
}

Strings plan_environment(const CompilePlan& plan, const std::string& path) {
    // The compiler's messages decide how a failure is interpreted, so they must be in English. A
    // compiler takes PWD for the working directory's own name. The user's HOME may have settings of
    // clang, and others can write to the usual directories of temporary files.
    const Strings own = {"PATH=" + search_path(path), "LC_ALL=C", "PWD=/proc/self/cwd", "TZ=UTC0",
                         "HOME=/proc/self/cwd",       "TMPDIR=."};
    Strings out;
    for (const std::string& each : own) {
        if (!sets_one_of(each, plan.set)) out.push_back(each);
    }
    out.insert(out.end(), plan.set.begin(), plan.set.end());
    return out;
}

Strings launcher_environment(const CompilePlan& plan, const Strings& launcher) {
    // A launcher's own variables begin with its name: CCACHE_DIR, SCCACHE_REDIS.
    Strings leads = {"HOME=", "USER=", "LOGNAME=", "XDG_"};
    for (const std::string& word : launcher) {
        std::string lead = file_name_of(word) + "_";
        for (char& c : lead) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
        leads.push_back(lead);
    }
    Strings taken;
    for (const std::string& variable : whole_environment()) {
        const auto begins = [&](const std::string& lead) { return variable.compare(0, lead.size(), lead) == 0; };
        if (std::any_of(leads.begin(), leads.end(), begins) && !sets_one_of(variable, plan.set))
            taken.push_back(variable);
    }
    for (const std::string& each : plan_environment(plan, environment("PATH"))) {
        if (!sets_one_of(each, taken)) taken.push_back(each);
    }
    return taken;
}

std::string reproducer(const CompilePlan& plan, const std::string& root) {
    const std::string env =
        "env -i PATH=\"$PATH\" HOME=\"$HOME\" " + (plan.set.empty() ? "" : shell_join(plan.set) + " ");
    const std::string link = plan.link.empty() ? "" : " && " + env + shell_join(plan.link);
    const std::string bundle = root.empty() ? "" : shell_join({"ln", "-s", root, LAZYCK_BUNDLE_LINK}) + " && ";
    return "cd \"$(mktemp -d)\" && " + bundle + env + shell_join(plan.compile) + link;
}

std::string find_toolchain(const RecipeRow& recipe) {
    if (recipe.home.empty() || is_directory(recipe.home)) return recipe.home;
    for (const std::string& variable : recipe.home_env) {
        const std::string home = environment(variable.c_str());
        if (!home.empty() && is_directory(home)) return home;
    }
    fail("lazyck: no " + recipe.toolchain + " toolchain: the build's, '" + recipe.home + "', is not on this machine" +
         (recipe.home_env.empty() ? std::string()
                                  : "; set " + join(recipe.home_env, " or ") + " to another one's home") +
         ", or fill the cache ahead of time with `lazyck prebuild build`");
}

}  // namespace lazyck::rt
