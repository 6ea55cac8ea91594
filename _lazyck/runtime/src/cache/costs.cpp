#include "cache/costs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "base/numbers.h"
#include "base/text.h"
#include "platform/files.h"

namespace lazyck::rt {

namespace {

constexpr std::size_t k_most_shipped = 4 << 20;

}  // namespace

std::string tail_of(const std::string& path, std::size_t most) {
    const UniqueFd fd = open_own(path, O_RDONLY);
    if (!fd) return "";
    const off_t size = lseek(fd.get(), 0, SEEK_END), longest = static_cast<off_t>(most);
    std::string text(static_cast<std::size_t>(std::clamp<off_t>(size, 0, longest)), '\0');
    const ssize_t n = pread(fd.get(), text.data(), text.size(), std::max<off_t>(0, size - longest));
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, n)));
    return text;
}

Guess Costs::guess() const { return guess_by(tail_of(m_path)); }

Guess Costs::guess(const std::string& path) const {
    Guess known = guess();
    if (known.blob.seconds > 0 && known.blob.peak_kib > 0) return known;
    const Guess shipped = guess_by(tail_of(path, k_most_shipped));
    if (known.blob.seconds <= 0) known.blob.seconds = shipped.blob.seconds;
    if (known.blob.peak_kib <= 0) known.blob.peak_kib = shipped.blob.peak_kib;
    if (known.largest.seconds <= 0) known.largest = shipped.largest;
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

}  // namespace lazyck::rt
