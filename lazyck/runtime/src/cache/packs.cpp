// A pack is a directory <site>/<module>. Its distribution has the file entry_points.txt in
// <site>/<name>-<version>.dist-info, with the line "<library> = <module>" in the group of packs.
// <module>/lazyck/pack has lines of words that are separated by blanks:
//     lazyck pack 1
//     pack <name> <version>
//     part <name> <version>      of this distribution; a pack's first part has the pack's name
//     base <name> <version>
//     library <digest> <path>    one or more; the library's path below <site>, blanks and all
// <module>/lazyck/cache is a cache. lazyck/pack/wheel.py writes all of this.
#include "cache/packs.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "cache/directory.h"
#include "error.hpp"
#include "lazyck_abi.h"
#include "platform/files.h"

namespace lazyck::rt {

namespace {

constexpr std::string_view k_dist_info = ".dist-info";
constexpr std::size_t k_longest_entry_points = 1 << 20;  // bytes; torch's has 2,000
constexpr std::size_t k_longest_pack = 1 << 16;
constexpr std::size_t k_shown_digits = 12;

// A directory that holds installed distributions.
struct Site {
    std::string path;
    UniqueFd fd;
    Strings infos;  // the names of the distributions' directories
};

std::optional<Site> site_above(const std::string& file) {
    for (std::string path = directory_of(file);; path = directory_of(path)) {
        Site site = {path, open_file(path, O_RDONLY | O_DIRECTORY), {}};
        for (std::string& name : site.fd ? names_in(site.fd.get()) : Strings()) {
            const bool is_info = name.size() > k_dist_info.size() &&
                                 std::string_view(name).substr(name.size() - k_dist_info.size()) == k_dist_info;
            if (is_info) site.infos.push_back(std::move(name));
        }
        if (!site.infos.empty()) return site;
        if (path == "/" || path == ".") return std::nullopt;
    }
}

// Returns whether `name` is one plain directory below the site: a directory elsewhere is never a
// pack.
bool is_module(const std::string& name) {
    return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    });
}

// Adds the modules that `text`, that of an entry_points.txt, names for `library`.
void add_modules(const std::string& text, const std::string& library, std::set<std::string>& modules) {
    bool is_in_group = false;
    for (const std::string& raw : split(text, "\n")) {
        const std::string line = without_blanks(raw);
        if (!line.empty() && line[0] == '[') is_in_group = line == "[" LAZYCK_PACKS_GROUP "]";
        const std::size_t equals = line.find('=');
        if (!is_in_group || equals == std::string::npos) continue;
        const std::string module = without_blanks(line.substr(equals + 1));
        if (without_blanks(line.substr(0, equals)) == library && is_module(module)) modules.insert(module);
    }
}

// Returns the normalized name of a distribution.
std::string normal_name(std::string_view name) {
    std::string normal;
    for (const char c : name) {
        const bool is_separator = c == '-' || c == '_' || c == '.';
        if (is_separator && !normal.empty() && normal.back() == '_') continue;
        normal += is_separator ? '_' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    return normal;
}

// Returns the version of the distribution `name` that is installed, or an empty string if there is
// none, or more than one (`pip install --target --upgrade` leaves the old directory behind).
std::string installed_version(const Site& site, const std::string& name) {
    Strings versions;
    for (const std::string& info : site.infos) {
        const std::string_view stem = std::string_view(info).substr(0, info.size() - k_dist_info.size());
        const std::size_t dash = std::min(stem.find('-'), stem.size());
        if (dash < stem.size() && normal_name(stem.substr(0, dash)) == normal_name(name))
            versions.emplace_back(stem.substr(dash + 1));
    }
    return versions.size() == 1 ? versions[0] : "";
}

// Reads the pack in the directory `module`. The result is empty if it is no pack for a library at
// `relative` (to the site) or of the manifest's build: other packages may have a library of the
// same name. Throws CompileError if others could write to the directory.
std::optional<Pack> read_pack(const Site& site, const std::string& module, const std::string& relative,
                              const std::string& digest) {
    const Directory directory = Directory::open(site.path + "/" + module);
    const std::optional<Directory> inner = directory.find("lazyck");
    if (!inner) return std::nullopt;
    const std::string path = inner->path() + "/pack";
    const UniqueFd fd = open_own_at(inner->fd(), "pack", O_RDONLY);
    if (!fd) {
        pass_over(path, "'" + path + "': " + system_text(errno));
        return std::nullopt;
    }
    const Strings lines = split(read_text(fd.get(), 0, k_longest_pack), "\n");
    if (lines.empty() || lines[0] != LAZYCK_PACK_VERSION) {
        pass_over(path, "'" + path + "' was written by another version of lazyck");
        return std::nullopt;
    }
    Pack pack;
    pack.root = inner->path() + "/cache";
    for (const std::string& line : lines) {
        const std::size_t first = line.find(' '), second = line.find(' ', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string kind = line.substr(0, first);
        const std::string one = line.substr(first + 1, second - first - 1), other = line.substr(second + 1);
        if (kind == "pack") {
            pack.name = one;
            pack.version = other;
        } else if (kind == "part") {
            pack.part = one;
        } else if (kind == "base") {
            pack.base = one;
            pack.base_version = other;
        } else if (kind == "library" && one == digest) {
            pack.digest = one;
            pack.is_for_this_build = true;
        } else if (kind == "library" && other == relative && !pack.is_for_this_build) {
            pack.digest = one;
        }
    }
    if (pack.digest.empty()) return std::nullopt;
    pack.installed = installed_version(site, pack.base);
    return pack;
}

std::string build_words(const std::string& base, const std::string& version, std::string_view digest) {
    const std::string named = version.empty() ? base : base + " " + version;
    return visible(named) + " (build " + visible(digest.substr(0, k_shown_digits)) + ")";
}

// Returns the command that installs, in place of `packs`, those of the installed base. Another
// version may have fewer parts, which its first part names. In the same version, pip replaces only
// what it is told to.
std::string remedy_for(const std::vector<Pack>& packs) {
    const Pack& first = packs.front();
    if (first.installed.empty()) return "install these packs and " + visible(first.base) + " from one build";
    const bool is_same_version = first.installed == first.base_version;
    std::set<std::string> wanted;
    for (const Pack& pack : packs) wanted.insert((is_same_version ? pack.part : pack.name) + "==" + first.installed);
    Strings command = {"pip", "install"};
    if (is_same_version) command.insert(command.end(), {"--force-reinstall", "--no-deps"});
    command.insert(command.end(), wanted.begin(), wanted.end());
    return "to install those of this build: " + shell_join(command);
}

}  // namespace

std::vector<Pack> find_packs(const std::string& library, const ManifestView& manifest) {
    std::vector<Pack> packs;
    const std::unique_ptr<char, decltype(&std::free)> real(realpath(library.c_str(), nullptr), &std::free);
    const std::optional<Site> site = real ? site_above(real.get()) : std::nullopt;
    if (!site) return packs;
    const std::string relative = std::string(real.get()).substr(site->path.size() + (site->path == "/" ? 0 : 1));
    std::set<std::string> modules;
    for (const std::string& info : site->infos) {
        const UniqueFd file = open_at(site->fd.get(), info + "/entry_points.txt", O_RDONLY | O_NONBLOCK);
        if (!file) continue;
        add_modules(read_text(file.get(), 0, k_longest_entry_points), manifest.library(), modules);
    }
    for (const std::string& module : modules) {
        try {
            if (auto pack = read_pack(*site, module, relative, manifest.digest())) packs.push_back(std::move(*pack));
        } catch (const CompileError& e) {
            pass_over(site->path + "/" + module, e.what());
        }
    }
    return packs;
}

Strings explain_mismatches(const std::vector<Pack>& packs, const std::string& library, const ManifestView& manifest) {
    std::map<std::string, std::vector<Pack>> by_build;
    for (const Pack& pack : packs) {
        if (!pack.is_for_this_build) by_build[pack.base + ' ' + pack.base_version + ' ' + pack.digest].push_back(pack);
    }
    Strings sentences;
    for (const auto& [build, others] : by_build) {
        const Pack& first = others.front();
        std::set<std::string> names;
        for (const Pack& pack : others) names.insert(visible(pack.name) + " " + visible(pack.version));
        sentences.push_back("installed for another build of " + std::string(manifest.library()) + ": " +
                            join({names.begin(), names.end()}, ", ") + ", made for " +
                            build_words(first.base, first.base_version, first.digest) + "; '" + visible(library) +
                            "' is of " + build_words(first.base, first.installed, manifest.digest()) + "; " +
                            remedy_for(others));
    }
    return sentences;
}

}  // namespace lazyck::rt
