#include "record/neighbours.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "record/profile.h"

namespace lazyck::rt {

namespace {

// The number of blobs to look ahead. The backward pass of a variant is called right after its
// forward pass or, in a model with few kinds of layers, soon after.
constexpr std::size_t k_reach = 4;

struct Follower {
    std::size_t count = 0;     // the number of processes in which it followed
    std::size_t distance = 0;  // the sum over these processes
};

}  // namespace

std::unordered_map<std::string, Strings> read_neighbours(const std::string& path, const std::string& library) {
    std::map<std::string, std::map<unsigned, std::string>> runs;  // process → order → blob
    for_each_row(path, library, [&](const ProfileRow& row) { runs[row.process][row.order] = row.blob; });
    std::unordered_map<std::string, std::size_t> seen;
    std::unordered_map<std::string, std::map<std::string, Follower>> followers;
    for (const auto& run : runs) {
        for (auto at = run.second.begin(); at != run.second.end(); ++at) {
            ++seen[at->second];
            auto next = std::next(at);
            for (std::size_t i = 1; i <= k_reach && next != run.second.end(); ++i, ++next) {
                Follower& follower = followers[at->second][next->second];
                ++follower.count;
                follower.distance += i;
            }
        }
    }
    std::unordered_map<std::string, Strings> found;
    for (const auto& each : followers) {
        std::vector<std::pair<std::string, Follower>> likely;
        for (const auto& follower : each.second) {
            if (2 * follower.second.count >= seen[each.first]) likely.push_back(follower);
        }
        std::sort(likely.begin(), likely.end(), [](const auto& a, const auto& b) {
            if (a.second.count != b.second.count) return a.second.count > b.second.count;
            if (a.second.distance != b.second.distance) return a.second.distance < b.second.distance;
            return a.first < b.first;
        });
        Strings& names = found[each.first];
        for (const auto& follower : likely) {
            if (names.size() < k_reach) names.push_back(follower.first);
        }
    }
    return found;
}

}  // namespace lazyck::rt
