#include "cache/costs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "base/text.h"
#include "lazyck_abi.h"
#include "platform/files.h"

namespace lazyck::rt {

namespace {

constexpr off_t k_most_shipped = 4 << 20;

// Returns the last `most` bytes of a file of ours, or an empty string if there is none.
std::string tail_of(const std::string& path, off_t most = 64 * 1024) {
    const UniqueFd fd = open_own(path, O_RDONLY);
    const off_t end = fd ? lseek(fd.get(), 0, SEEK_END) : 0;
    return fd ? read_text(fd.get(), static_cast<std::size_t>(std::max<off_t>(0, end - most)), most) : "";
}

// What each further kernel of a file adds to a whole compile, as a share of the cost of one
// kernel's own code. Kernels of a file share templates, which the whole compile instantiates only
// once. (The share is 0.24 for FlashAttention's file with 32 kernels.)
constexpr double k_share_of_next = 0.25;

// Estimates of a whole compile are multiplied by this margin, since they may be too high by as
// much.
constexpr double k_margin = 0.85;

struct Known {
    double host = -1, read = 0, all_text = 0, kernels = 0;  // of the host unit
    double whole = -1;
    double units = 0, all_units = 0;  // number of kernels that were compiled, and their total cost
    double read_by_units = 0;         // the part of it that went into reading all of the text
    bool is_refused = false;          // one of them could not be compiled by itself
};

// Returns the cost by kernel divided by the cost of the whole, if anything too high, or nullopt if
// unknown.
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
        double figures[4] = {};  // a kind fills its first ones
        std::size_t read = 0, count = kind == LAZYCK_COST_HOST ? 4 : kind == LAZYCK_COST_ALONE ? 2 : 1;
        for (; read < count; ++read) {
            const auto figure = take_number(rest);
            if (!figure) break;
            figures[read] = *figure;
        }
        if (read < count || rest.size() < 2) continue;
        Known& known = found[std::string(rest.substr(1))];
        if (kind == LAZYCK_COST_HOST) {
            known.host = figures[0];
            known.read = figures[1];
            known.all_text = figures[2];
            known.kernels = figures[3];
        } else if (kind == LAZYCK_COST_KERNEL || kind == LAZYCK_COST_ALONE) {
            known.all_units += figures[0];
            known.read_by_units += figures[1];
            ++known.units;
        } else if (kind == LAZYCK_COST_REFUSED) {
            known.is_refused = true;
        } else if (kind == LAZYCK_COST_WHOLE) {
            known.whole = figures[0];
        }
    }
    return found;
}

}  // namespace

Guess Costs::guess(const std::string& shipped) const {
    Guess known = guess_by(tail_of(m_path));
    if (shipped.empty() || (known.blob.seconds > 0 && known.blob.peak_kib > 0)) return known;
    const Guess other = guess_by(tail_of(shipped, k_most_shipped));
    if (known.blob.seconds <= 0) known.blob.seconds = other.blob.seconds;
    if (known.blob.peak_kib <= 0) known.blob.peak_kib = other.blob.peak_kib;
    if (known.largest.seconds <= 0) known.largest = other.largest;
    return known;
}

Guess Costs::guess_by(const std::string& text) const {
    Guess found;
    bool is_exact = false;
    for (const std::string& line : split(text, "\n")) {
        std::string_view blob = line;
        const auto seconds = take_number(blob);
        const auto peak_kib = take_integer(blob);
        if (!seconds || !peak_kib || *peak_kib < 0 || blob.empty()) continue;
        const Cost cost = {*seconds, *peak_kib};
        blob.remove_prefix(1);
        const bool was_killed = !blob.empty() && blob[0] == '!';
        if (was_killed) blob.remove_prefix(1);
        const std::size_t space = blob.find(' ');
        if (space == std::string_view::npos) continue;
        const std::string_view archs = blob.substr(space + 1);
        blob = blob.substr(0, space);
        if (blob == m_blob && (archs == m_archs || !is_exact)) {
            found.blob = cost;
            is_exact = archs == m_archs;
        }
        if (was_killed) continue;
        found.largest.seconds = std::max(found.largest.seconds, cost.seconds);
        found.largest.peak_kib = std::max(found.largest.peak_kib, cost.peak_kib);
    }
    return found;
}

void Costs::add(const Cost& cost, bool was_killed) const {
    const std::string figures = decimal(cost.seconds, 3) + " " + std::to_string(cost.peak_kib) + " ";
    const UniqueFd fd = open_own(m_path, O_WRONLY | O_CREAT | O_APPEND);
    if (fd) write_all(fd.get(), figures + (was_killed ? "!" : "") + m_blob + " " + m_archs + "\n");
}

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
