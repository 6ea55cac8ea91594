#include "entrance/tool_make.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <set>

#include "base/failure.h"
#include "base/text.h"
#include "bundle/readable.h"
#include "bundle/recipe.h"
#include "lazyck_abi.h"
#include "platform/files.h"
#include "platform/process.h"
#include "platform/read_rule.h"
#include "store/sources.h"

namespace lazyck::rt {

namespace {

// The service may read what is made as another user.
void move_to(const char* target, const std::string& path, mode_t mode) {
    if (std::rename(path.c_str(), target) == 0 ? chmod(target, mode) != 0 : errno != ENOENT)
        fail_system("cannot make '" + std::string(target) + "'", errno);
}

}  // namespace

int run_limited(const ManifestView& manifest, const BlobRow& blob, const std::string& root, const Strings& argv) {
    const RecipeRow recipe = manifest.recipe(blob.recipe);
    RecipeValues values;
    values.root = root;
    values.toolchain = find_toolchain(recipe);
    const Readable readable(recipe, values.toolchain, places_of({root, "", "", true}, blob));
    const UniqueFd here = open_file(".", O_RDONLY | O_DIRECTORY);
    const ReadRule rule(readable.files, here.get());
    Command command;
    command.argv = argv;
    command.environment = plan_environment(make_plan(recipe, values), readable.path);
    command.output = 1;
    command.errors = 2;
    command.read_rule = rule.fd();
    const Outcome outcome = run_command(command);
    if (!outcome.has_started || outcome.signal != 0 || outcome.ending == Ending::unknown)
        fail("lazyck: " + outcome.text);
    return outcome.exit_status;
}

void offer_toolchain(const ManifestView& manifest, const std::string& path) {
    std::set<std::uint32_t> recipes;
    for (std::uint32_t i = 0; i < manifest.blob_count(); ++i) recipes.insert(manifest.blob(i).recipe);
    for (const std::uint32_t recipe : recipes) {
        for (const std::string& variable : manifest.recipe(recipe).home_env) setenv(variable.c_str(), path.c_str(), 1);
    }
}

ActionCache::ActionCache(Config& config) {
    std::string name = absolute("cache-XXXXXX");
    if (mkdtemp(name.data()) == nullptr) fail_system("cannot make '" + name + "'", errno);
    m_root = name;
    config.cache_dir = name;
    config.cache_path.clear();
    config.cache_max_kib = 0;
    config.has_remote = false;
    config.jit = Jit::on;
    // The service decides how many actions a machine runs at a time.
    config.mem_per_job_kib = 0;
    config.profile.clear();
    config.trace.clear();
}

ActionCache::~ActionCache() {
    const UniqueFd here = open_file(directory_of(m_root), O_RDONLY | O_DIRECTORY);
    if (here) remove_tree(here.get(), file_name_of(m_root));
}

void ActionCache::deliver(const std::string& path, double seconds, long peak_kib) const {
    if (mkdir(LAZYCK_MAKE_DIRECTORY, 0755) != 0 && errno != EEXIST)
        fail_system("cannot make '" LAZYCK_MAKE_DIRECTORY "'", errno);
    move_to(LAZYCK_MAKE_ENTRY, path, 0755);
    move_to(LAZYCK_MAKE_LOG, path.substr(0, path.size() - 3) + ".log", 0644);
    const UniqueFd cost = open_file(LAZYCK_MAKE_COST, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (!cost || !write_all(cost.get(), decimal(seconds, 3) + " " + std::to_string(peak_kib) + "\n"))
        fail_system("cannot write the cost", errno);
}

}  // namespace lazyck::rt
