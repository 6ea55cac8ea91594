#include "cache/by_kernel.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "base/numbers.h"
#include "base/text.h"
#include "cache/costs.h"
#include "platform/files.h"

namespace lazyck::rt {

namespace {

// The share of the cost of one kernel's own code that each further kernel of the file costs in a
// whole compile. Kernels of a file share templates, which the whole compile instantiates only once.
// (The share is 0.24 for FlashAttention's file with 32 kernels.)
constexpr double k_share_of_next = 0.25;

// Estimates of a whole compile are multiplied by this margin, since they may be too high by as
// much.
constexpr double k_margin = 0.85;

struct Known {
    double host = -1, read = 0, all_text = 0, kernels = 0, whole = -1;
    double units = 0, all_units = 0;  // number of kernels that were compiled, and their total cost
    double read_by_units = 0;         // the part of it that went into reading all of the text
    bool is_refused = false;          // one of them could not be compiled by itself
};

// Returns the cost by kernel in relation to the cost of the whole, rather too high than too low, or
// nullopt if it is not known yet.
std::optional<double> ratio(const Known& known) {
    if (known.is_refused) return 2;
    if (known.host < 0) return std::nullopt;
    const double host_alone = known.host - known.read;
    // With one kernel or none there is nothing to leave out.
    if (known.kernels < 2) return 2;
    if (known.units == 0) return std::nullopt;
    const double kernel = known.all_units / known.units, text = known.read_by_units / known.units;
    const double own = std::max(0.0, kernel - std::max(known.read, text));
    double whole = host_alone + std::max(known.all_text, text) + own * (1 + (known.kernels - 1) * k_share_of_next);
    whole *= k_margin;
    if (known.whole >= 0) whole = host_alone + known.whole;
    return (known.host + kernel) / std::max(whole, 1e-3);
}

std::unordered_map<std::string, Known> read_costs(const std::string& path) {
    std::unordered_map<std::string, Known> found;
    for (const std::string& line : split(tail_of(path), "\n")) {
        std::string_view rest = line;
        const std::string_view kind = rest.substr(0, rest.find(' '));
        rest.remove_prefix(kind.size());
        const auto seconds = take_number(rest);
        if (!seconds) continue;
        Known next;
        double text = 0;
        if (kind == "alone") {
            const auto device = take_number(rest);
            if (!device) continue;
            text = *device;
        }
        if (kind == "host") {
            const auto device = take_number(rest), all_text = take_number(rest);
            const auto kernels = take_integer(rest);
            if (!device || !all_text || !kernels) continue;
            next.host = *seconds;
            next.read = *device;
            next.all_text = *all_text;
            next.kernels = static_cast<double>(*kernels);
        }
        if (rest.size() < 2) continue;
        Known& known = found[std::string(rest.substr(1))];
        if (kind == "host") {
            next.whole = known.whole;
            next.is_refused = known.is_refused;
            next.units = known.units;
            next.all_units = known.all_units;
            next.read_by_units = known.read_by_units;
            known = next;
        } else if (kind == "kernel" || kind == "alone") {
            known.all_units += *seconds;
            known.read_by_units += text;
            ++known.units;
        } else if (kind == "refused") {
            known.is_refused = true;
        } else if (kind == "whole") {
            known.whole = *seconds;
        }
    }
    return found;
}

}  // namespace

bool ByKernel::is_cheaper() const {
    const auto all = read_costs(m_path);
    const auto own = all.find(m_blob);
    if (own != all.end()) {
        if (const auto known = ratio(own->second)) return *known <= 1;
    }
    unsigned cheaper = 0, dearer = 0;
    for (const auto& each : all) {
        if (const auto known = ratio(each.second)) ++(*known <= 1 ? cheaper : dearer);
    }
    return cheaper >= dearer;
}

void ByKernel::add(const std::string& said) const {
    const std::string_view text = said;
    const std::string line(text.substr(0, text.find('\n')));
    if (line.size() > 200) return;
    const UniqueFd fd = open_own(m_path, O_WRONLY | O_CREAT | O_APPEND);
    if (fd) write_all(fd.get(), line + " " + m_blob + "\n");
}

}  // namespace lazyck::rt
